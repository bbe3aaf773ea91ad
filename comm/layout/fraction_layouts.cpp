#include "comm/layout/fraction_layouts.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/text.h"
#include "comm/layout/mig_placement.h"

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

Share share_of(const MigDevice& device) {
  Share share{.mode = SharingMode::mig};
  (device.profile.empty() ? share.instance : share.profile) = profile_or_uuid(device);
  return share;
}

// Shares that jobs have at once. Names fit into the labels of charts, also beside neighbours.
struct NamedShares {
  std::string name;
  std::vector<Share> shares{};  // by job
};

NamedShares shares_of(const std::vector<MigDevice>& devices) {
  NamedShares named;
  std::vector<std::string> names;
  for (const MigDevice& device : devices) {
    named.shares.push_back(share_of(device));
    names.push_back(profile_or_uuid(device));
  }
  const bool even = std::set(names.begin(), names.end()).size() == 1;
  named.name = "MIG " + (even ? names.front() : joined(names, " + "));
  return named;
}

// Parts of the GPU are even, but for MIG devices.
std::vector<NamedShares> shares_at_once(const Host& host, int64_t jobs) {
  const int64_t part = 100 / jobs;
  const std::string percent = " " + std::to_string(part) + " percent";
  std::vector<NamedShares> all;
  const auto add = [&](const std::string& name, const Share& share) {
    all.push_back({name, std::vector(static_cast<size_t>(jobs), share)});
  };
  add("time slices", {.mode = SharingMode::timeslice});
  if (host.gpus == 0) return all;
  add("MPS", {.mode = SharingMode::mps});
  add("MPS" + percent, {.mode = SharingMode::mps, .threads_percent = part});
  add("SMs" + percent, {.mode = SharingMode::sm, .threads_percent = part});
  const std::vector<MigDevice> devices = mig_devices_for(host, jobs);
  if (std::ssize(devices) == jobs) all.push_back(shares_of(devices));
  return all;
}

// One job alone on each part that some job has: the cost of neighbours is told from that of a
// smaller share.
std::vector<Layout> alone_on_parts(const Host& host, const std::vector<NamedShares>& all) {
  std::vector<Layout> layouts;
  for (const NamedShares& named : all) {
    std::map<std::string, Share> parts;
    for (const Share& share : named.shares) {
      if (share.threads_percent) parts.emplace(named.name, share);
      const auto& device = share.profile ? share.profile : share.instance;
      if (device) parts.emplace("MIG " + *device, share);
    }
    for (const auto& [name, share] : parts) {
      layouts.push_back(layout_of("alone, " + name, {job_on(host, share)}));
    }
  }
  return layouts;
}

}  // namespace

std::vector<Layout> fraction_layouts(const Host& host, const Fractions& fractions) {
  const std::vector<NamedShares> all = shares_at_once(host, fractions.jobs);
  const std::vector<std::string> names = fraction_names(fractions);
  const std::vector<NeighbourLoad>& loads = fractions.neighbours;
  std::vector<Layout> layouts = {layout_of("alone", {job_on(host, {.mode = SharingMode::alone})})};
  if (loads.empty()) {
    const Job turn = job_on(host, {.mode = SharingMode::serial});
    layouts.push_back(layout_of(names[0] + "serial", {static_cast<size_t>(fractions.jobs), turn}));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    for (const NamedShares& named : all) {
      std::vector<Job> jobs;
      for (const Share& share : named.shares) jobs.push_back(job_on(host, share));
      for (size_t job = 1; job < jobs.size() && !loads.empty(); ++job) jobs[job].stress = loads[i];
      layouts.push_back(layout_of(names[i] + named.name, std::move(jobs)));
    }
  }
  std::ranges::move(alone_on_parts(host, all), std::back_inserter(layouts));
  return layouts;
}

std::vector<std::string> fraction_names(const Fractions& fractions) {
  if (fractions.neighbours.empty()) return {std::to_string(fractions.jobs) + " jobs, "};
  std::vector<std::string> names;
  for (const NeighbourLoad load : fractions.neighbours) {
    names.push_back("1 job, " + std::to_string(fractions.jobs - 1) + " " + to_string(load) + ", ");
  }
  return names;
}

}  // namespace nearmetal
