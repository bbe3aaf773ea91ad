// Hosts and layouts for tests of placement, and where their ranks go in short.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "comm/layout/placement.h"
#include "tests/support/refusal.h"

namespace nearmetal {

inline Host host(const std::string& name, int64_t gpus) {
  Host host;
  host.name = name;
  host.gpus = gpus;
  return host;
}

inline Host cpu_host(const std::string& name, const std::string& cpus) {
  Host with_cpus = host(name, 0);
  with_cpus.cpus = cpus;
  return with_cpus;
}

inline Layout listed(std::vector<Job> jobs, bool emulate = false) {
  Layout layout;
  layout.name = "listed";
  layout.jobs = std::move(jobs);
  layout.emulate = emulate;
  layout.source = "/layouts/0";
  return layout;
}

// "vm0:0 vm0:1" for the GPUs of a job's ranks, or "a" without.
inline std::string places(const PlacedJob& job) {
  std::string text;
  for (const PlacedRank& rank : job.ranks) {
    text += (text.empty() ? "" : " ") + rank.host;
    if (rank.gpu) text += ":" + std::to_string(*rank.gpu);
  }
  return text;
}

inline std::vector<std::string> places(const Placement& placement) {
  std::vector<std::string> texts;
  for (const PlacedJob& job : placement.jobs) texts.push_back(places(job));
  return texts;
}

inline std::string refusal_of_hosts(const Layout& layout, const std::vector<Host>& hosts) {
  return refusal_of([&] { place(layout, hosts); });
}

}  // namespace nearmetal
