// The limits of the control groups that this process is in, of version 1, 2 or both at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace nearmetal {

/// What a group, or one of those above it as far as they are seen, allows.
struct GroupLimits {
  bool knows_cpus = false, knows_memory = false;  // else no group could be read
  std::optional<double> cpus;                     // none, where it tells: no limit is set
  std::optional<int64_t> memory_bytes;
  std::optional<int64_t> memory_left_bytes;  // with the file pages that the kernel would take back
};
GroupLimits group_limits(const std::filesystem::path& root = "/");

/// How often a quota of CPUs stopped the threads of a group, counted since it was made.
struct GroupThrottling {
  int64_t periods = 0;
  int64_t throttled = 0;
};
/// The counts of every group that has them, innermost first.
std::vector<GroupThrottling> group_throttling(const std::filesystem::path& root = "/");

/// Threads that are worth having on so many CPUs. A part of a CPU is worth one, but none is left
/// waiting for the next period of the quota.
int64_t threads_within(int64_t cpus, std::optional<double> quota);

}  // namespace nearmetal
