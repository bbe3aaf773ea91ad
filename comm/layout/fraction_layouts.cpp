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

struct SharedArm {
  std::string name;
  Share share;
  std::vector<MigDevice> devices{};  // by job; empty: not by MIG
};

Share share_of(const MigDevice& device) {
  Share share{.mode = SharingMode::mig};
  (device.profile.empty() ? share.instance : share.profile) = profile_or_uuid(device);
  return share;
}

// The arm where there are enough MIG devices.
std::optional<SharedArm> mig_arm(const Host& host, int64_t jobs) {
  SharedArm arm{"MIG ", {.mode = SharingMode::mig}};
  arm.devices = mig_devices_for(host, jobs);
  if (std::ssize(arm.devices) < jobs) return std::nullopt;
  std::vector<std::string> names;
  for (const MigDevice& device : arm.devices) names.push_back(profile_or_uuid(device));
  const std::set<std::string> kinds(names.begin(), names.end());
  arm.name += kinds.size() == 1 ? *kinds.begin() : joined(names, " + ");
  return arm;
}

std::vector<Job> jobs_on(const Host& host, const SharedArm& arm, int64_t jobs) {
  std::vector<Job> all(static_cast<size_t>(jobs), job_on(host, arm.share));
  for (size_t job = 0; job < arm.devices.size(); ++job) {
    all[job].share = share_of(arm.devices[job]);
  }
  return all;
}

// The arms whose jobs run at once. Names fit into the labels of charts, also beside neighbours.
// Parts of the GPU are even.
std::vector<SharedArm> simultaneous_arms(const Host& host, int64_t jobs) {
  std::vector<SharedArm> arms = {{"time slices", {.mode = SharingMode::timeslice}}};
  if (host.gpus == 0) return arms;
  const int64_t part = 100 / jobs;
  const std::string percent = std::to_string(part) + " percent";
  arms.push_back({"MPS", {.mode = SharingMode::mps}});
  arms.push_back({"MPS " + percent, {.mode = SharingMode::mps, .threads_percent = part}});
  arms.push_back({"SMs " + percent, {.mode = SharingMode::sm, .threads_percent = part}});
  if (const auto arm = mig_arm(host, jobs)) arms.push_back(*arm);
  return arms;
}

// The cost of neighbours is told from that of a smaller share.
std::vector<Layout> alone_on_parts(const Host& host, int64_t jobs) {
  if (host.gpus == 0) return {};
  const int64_t part = 100 / jobs;
  const std::string percent = std::to_string(part) + " percent";
  std::vector<Layout> layouts = {
      layout_of("alone, MPS " + percent,
                {job_on(host, {.mode = SharingMode::mps, .threads_percent = part})}),
      layout_of("alone, SMs " + percent,
                {job_on(host, {.mode = SharingMode::sm, .threads_percent = part})})};
  const auto arm = mig_arm(host, jobs);
  if (!arm) return layouts;
  std::map<std::string, MigDevice> kinds;
  for (const MigDevice& device : arm->devices) kinds.emplace(profile_or_uuid(device), device);
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
      layout_of(count + "serial", {all, job_on(host, {.mode = SharingMode::serial})})};
  for (const SharedArm& arm : simultaneous_arms(host, jobs)) {
    layouts.push_back(layout_of(count + arm.name, jobs_on(host, arm, jobs)));
  }
  return layouts;
}

// One trains, and the others disturb it.
std::vector<Layout> beside_neighbours(const Host& host, int64_t jobs,
                                      const std::vector<NeighbourLoad>& loads) {
  std::vector<Layout> layouts;
  for (const NeighbourLoad load : loads) {
    for (const SharedArm& arm : simultaneous_arms(host, jobs)) {
      std::vector<Job> all = jobs_on(host, arm, jobs);
      for (size_t job = 1; job < all.size(); ++job) all[job].stress = load;
      layouts.push_back(layout_of(name_beside(load, jobs) + arm.name, std::move(all)));
    }
  }
  return layouts;
}

void append(std::vector<Layout>& layouts, std::vector<Layout> more) {
  std::move(more.begin(), more.end(), std::back_inserter(layouts));
}

}  // namespace

std::vector<Layout> fraction_layouts(const Host& host, const Fractions& fractions) {
  std::vector<Layout> arms = {layout_of("alone", {job_on(host, {.mode = SharingMode::alone})})};
  append(arms, fractions.neighbours.empty()
                   ? training_at_once(host, fractions.jobs)
                   : beside_neighbours(host, fractions.jobs, fractions.neighbours));
  append(arms, alone_on_parts(host, fractions.jobs));
  return arms;
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
