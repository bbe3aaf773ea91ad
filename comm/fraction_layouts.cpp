#include "comm/fraction_layouts.h"

#include <set>
#include <string>
#include <utility>

#include "comm/mig_placement.h"

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

// Where there are enough MIG devices: a job on each, and one alone on each kind of them.
void add_mig(const Host& host, int64_t jobs, std::vector<Layout>& layouts) {
  const std::vector<MigDevice> devices = mig_devices_for(host, jobs);
  if (std::ssize(devices) < jobs) return;
  std::set<std::string> kinds;
  std::string of_all;
  for (const MigDevice& device : devices) {
    kinds.insert(device.profile);
    of_all += (of_all.empty() ? "" : " + ") + device.profile;
  }
  const std::string profiles = kinds.size() == 1 ? *kinds.begin() : of_all;
  Layout all =
      sharing(host, std::to_string(jobs) + " jobs, MIG, " + profiles, jobs, {.way = "mig"});
  for (size_t job = 0; job < devices.size(); ++job) {
    all.jobs[job].share->profile = devices[job].profile;
  }
  layouts.push_back(std::move(all));
  for (const std::string& kind : kinds) {
    layouts.push_back(sharing(host, "alone, MIG, " + kind, 1, {.way = "mig", .profile = kind}));
  }
}

std::vector<Layout> ways_to_share(const Host& host, int64_t jobs) {
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
  add_mig(host, jobs, layouts);
  return layouts;
}

}  // namespace

std::vector<Layout> fraction_layouts(const Host& host, int64_t jobs,
                                     const std::vector<int64_t>& batches) {
  std::vector<Layout> ways = ways_to_share(host, jobs);
  if (batches.empty()) return ways;
  std::vector<Layout> layouts;
  for (const int64_t batch : batches) {
    for (Layout layout : ways) {
      const std::string text = std::to_string(batch);
      layout.name += ", batch " + text;
      layout.source = layout.name;
      layout.workload.texts["batch"] = text;
      layouts.push_back(std::move(layout));
    }
  }
  return layouts;
}

}  // namespace nearmetal
