#include "comm/layout/fraction_layouts.h"

#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "comm/layout/mig_placement.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

Job job_on(const Host& host, const Share& share) {
  Job job;
  Instance& instance = job.instances.emplace_back();
  instance.host = host.name;
  if (host.gpus > 0) {
    instance.gpus = {first_gpu_of(host)};
  } else {
    instance.ranks = 1;
  }
  job.share = share;
  return job;
}

Layout layout_of(const std::string& name, std::vector<Job> jobs) {
  Layout layout;
  layout.name = layout.source = name;
  layout.jobs = std::move(jobs);
  return layout;
}

struct Way {
  std::string name;
  Share share;
  std::vector<MigDevice> devices{};  // by job; empty: not by MIG
};

Share share_of(const MigDevice& device) {
  Share share{.way = SharingMode::mig};
  (device.profile.empty() ? share.instance : share.profile) = kind_of(device);
  return share;
}

// Where there are enough MIG devices.
std::optional<Way> way_by_mig(const Host& host, int64_t jobs) {
  Way way{"MIG ", {.way = SharingMode::mig}};
  way.devices = mig_devices_for(host, jobs);
  if (std::ssize(way.devices) < jobs) return std::nullopt;
  std::vector<std::string> names;
  for (const MigDevice& device : way.devices) names.push_back(kind_of(device));
  const std::set<std::string> kinds(names.begin(), names.end());
  way.name += kinds.size() == 1 ? *kinds.begin() : joined(names, " + ");
  return way;
}

std::vector<Job> jobs_on(const Host& host, const Way& way, int64_t jobs) {
  std::vector<Job> all(static_cast<size_t>(jobs), job_on(host, way.share));
  for (size_t job = 0; job < way.devices.size(); ++job) {
    all[job].share = share_of(way.devices[job]);
  }
  return all;
}

// At once. Names fit into the labels of charts, also beside neighbours. Parts of the GPU are even.
std::vector<Way> ways_at_once(const Host& host, int64_t jobs) {
  std::vector<Way> ways = {{"time slices", {.way = SharingMode::timeslice}}};
  if (host.gpus == 0) return ways;
  const int64_t part = 100 / jobs;
  const std::string percent = std::to_string(part) + " percent";
  ways.push_back({"MPS", {.way = SharingMode::mps}});
  ways.push_back({"MPS " + percent, {.way = SharingMode::mps, .threads_percent = part}});
  ways.push_back({"SMs " + percent, {.way = SharingMode::sm, .threads_percent = part}});
  if (const auto way = way_by_mig(host, jobs)) ways.push_back(*way);
  return ways;
}

// What the neighbours cost is told from what a smaller share costs.
std::vector<Layout> alone_on_parts(const Host& host, int64_t jobs) {
  if (host.gpus == 0) return {};
  const int64_t part = 100 / jobs;
  const std::string percent = std::to_string(part) + " percent";
  std::vector<Layout> layouts = {
      layout_of("alone, MPS " + percent,
                {job_on(host, {.way = SharingMode::mps, .threads_percent = part})}),
      layout_of("alone, SMs " + percent,
                {job_on(host, {.way = SharingMode::sm, .threads_percent = part})})};
  const auto way = way_by_mig(host, jobs);
  if (!way) return layouts;
  std::map<std::string, MigDevice> kinds;
  for (const MigDevice& device : way->devices) kinds.emplace(kind_of(device), device);
  for (const auto& [kind, device] : kinds) {
    layouts.push_back(layout_of("alone, MIG " + kind, {job_on(host, share_of(device))}));
  }
  return layouts;
}

std::string name_of_jobs(int64_t jobs) { return std::to_string(jobs) + " jobs, "; }

std::string name_beside(NeighbourLoad load, int64_t jobs) {
  return "1 job, " + std::to_string(jobs - 1) + " " + to_string(load) + ", ";
}

std::vector<Layout> training_at_once(const Host& host, int64_t jobs) {
  const std::string count = name_of_jobs(jobs);
  const auto all = static_cast<size_t>(jobs);
  std::vector<Layout> layouts = {
      layout_of(count + "serial", {all, job_on(host, {.way = SharingMode::serial})})};
  for (const Way& way : ways_at_once(host, jobs)) {
    layouts.push_back(layout_of(count + way.name, jobs_on(host, way, jobs)));
  }
  return layouts;
}

// One trains, and the others disturb it.
std::vector<Layout> beside_neighbours(const Host& host, int64_t jobs,
                                      const std::vector<NeighbourLoad>& loads) {
  std::vector<Layout> layouts;
  for (const NeighbourLoad load : loads) {
    for (const Way& way : ways_at_once(host, jobs)) {
      std::vector<Job> all = jobs_on(host, way, jobs);
      for (size_t job = 1; job < all.size(); ++job) all[job].stress = load;
      layouts.push_back(layout_of(name_beside(load, jobs) + way.name, std::move(all)));
    }
  }
  return layouts;
}

void append(std::vector<Layout>& layouts, std::vector<Layout> more) {
  std::move(more.begin(), more.end(), std::back_inserter(layouts));
}

std::vector<Layout> with_batch(std::vector<Layout> layouts, int64_t batch) {
  const std::string text = std::to_string(batch);
  for (Layout& layout : layouts) {
    layout.name += ", batch " + text;
    layout.source = layout.name;
    layout.workload.texts["batch"] = text;
  }
  return layouts;
}

}  // namespace

std::vector<Layout> fraction_layouts(const Host& host, const Fractions& fractions) {
  std::vector<Layout> ways = {layout_of("alone", {job_on(host, {.way = SharingMode::alone})})};
  append(ways, fractions.neighbours.empty()
                   ? training_at_once(host, fractions.jobs)
                   : beside_neighbours(host, fractions.jobs, fractions.neighbours));
  append(ways, alone_on_parts(host, fractions.jobs));
  if (fractions.batches.empty()) return ways;
  std::vector<Layout> layouts;
  for (const int64_t batch : fractions.batches) append(layouts, with_batch(ways, batch));
  return layouts;
}

std::vector<std::string> fraction_names(const Fractions& fractions) {
  if (fractions.neighbours.empty()) return {name_of_jobs(fractions.jobs)};
  std::vector<std::string> names;
  for (const NeighbourLoad load : fractions.neighbours) {
    names.push_back(name_beside(load, fractions.jobs));
  }
  return names;
}

}  // namespace nearmetal
