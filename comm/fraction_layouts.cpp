#include "comm/fraction_layouts.h"

#include <string>

namespace nearmetal {
namespace {

Layout sharing(const Host& host, const std::string& name, int64_t jobs, const Share& share) {
  Job job;
  Instance& instance = job.instances.emplace_back();
  instance.host = host.name;
  if (host.gpus > 0) {
    instance.gpus = {0};
  } else {
    instance.ranks = 1;
  }
  job.share = share;
  Layout layout;
  layout.name = layout.source = name;
  layout.jobs.assign(static_cast<size_t>(jobs), job);
  return layout;
}

}  // namespace

std::vector<Layout> fraction_layouts(const Host& host, int64_t jobs) {
  const std::string count = std::to_string(jobs) + " jobs";
  std::vector<Layout> layouts = {
      sharing(host, "alone", 1, {.way = "alone"}),
      sharing(host, count + ", serial", jobs, {.way = "serial"}),
      sharing(host, count + ", time slices", jobs, {.way = "timeslice"}),
  };
  if (host.gpus == 0) return layouts;
  const Share part{.way = "mps", .threads_percent = 100 / jobs};
  const std::string percent = std::to_string(*part.threads_percent) + " percent";
  layouts.push_back(sharing(host, count + ", MPS", jobs, {.way = "mps"}));
  layouts.push_back(sharing(host, count + ", MPS, " + percent + " each", jobs, part));
  layouts.push_back(sharing(host, "alone, MPS, " + percent, 1, part));
  return layouts;
}

}  // namespace nearmetal
