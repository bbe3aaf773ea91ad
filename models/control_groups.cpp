#include "models/control_groups.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

constexpr int64_t no_limit_of_version_1 = int64_t{1} << 60;  // the largest whole pages, in fact

std::optional<double> number_in(const fs::path& path) {
  std::ifstream file(path);
  double value = 0;
  if (file >> value) return value;
  return std::nullopt;  // no such file, or "max"
}

std::optional<int64_t> named_number_in(const fs::path& path, const std::string& name) {
  std::ifstream file(path);
  std::string word;
  for (int64_t value = 0; file >> word >> value;) {
    if (word == name) return value;
  }
  return std::nullopt;
}

// The folder and those above it, up to the mount.
void add_up_to(const fs::path& mount, fs::path folder, std::vector<fs::path>& groups) {
  for (; folder.string().size() > mount.string().size(); folder = folder.parent_path()) {
    groups.push_back(folder);
  }
  groups.push_back(mount);
}

// The groups of a controller, innermost first. Of version 2 all are below one mount, of version 1
// below one for each controller. A container sees its own group as the mount, whatever the path is
// outside.
std::vector<fs::path> groups_of(const std::string& controller, const fs::path& root) {
  const fs::path mounts = root / "sys/fs/cgroup";
  std::vector<fs::path> groups;
  std::ifstream lines(root / "proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {  // 4:cpu,cpuacct:/docker/abc or 0::/jobs
    std::istringstream fields(line);
    std::string number, controllers, path;
    std::getline(std::getline(std::getline(fields, number, ':'), controllers, ':'), path);
    const fs::path own = fs::path(path).relative_path();
    if (controllers.empty()) add_up_to(mounts, mounts / own, groups);
    if (("," + controllers + ",").find("," + controller + ",") == controllers.npos) continue;
    for (const std::string& name : std::set{controllers, controller}) {
      if (fs::exists(mounts / name)) add_up_to(mounts / name, mounts / name / own, groups);
    }
  }
  if (groups.empty()) groups.push_back(mounts);
  return groups;
}

template <class T>
void take_least(std::optional<T>& least, T value) {
  least = std::min(least.value_or(value), value);
}

void take_cpus(const fs::path& group, GroupLimits& limits) {
  std::ifstream file(group / "cpu.max");  // "150000 100000", or "max 100000"
  std::string word;
  double period = 0;
  std::optional<double> quota;
  if (file >> word >> period) {
    quota = std::strtod(word.c_str(), nullptr);  // 0 of "max"
  } else {
    quota = number_in(group / "cpu.cfs_quota_us");
    period = number_in(group / "cpu.cfs_period_us").value_or(0);
  }
  limits.knows_cpus = limits.knows_cpus || quota;
  if (quota && *quota > 0 && period > 0) take_least(limits.cpus, *quota / period);
}

void take_memory(const fs::path& group, GroupLimits& limits) {
  struct Names {
    const char *limit, *used, *reclaimable;
  };
  for (const Names& names :
       {Names{"memory.max", "memory.current", "inactive_file"},
        Names{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}}) {
    if (!fs::exists(group / names.limit)) continue;
    limits.knows_memory = true;
    const auto limit = number_in(group / names.limit);
    if (!limit || *limit >= static_cast<double>(no_limit_of_version_1)) continue;
    const auto bytes = static_cast<int64_t>(*limit);
    const auto used = static_cast<int64_t>(number_in(group / names.used).value_or(0));
    take_least(limits.memory_bytes, bytes);
    take_least(
        limits.memory_left_bytes,
        bytes - used + named_number_in(group / "memory.stat", names.reclaimable).value_or(0));
  }
}

}  // namespace

GroupLimits group_limits(const fs::path& root) {
  GroupLimits limits;
  for (const fs::path& group : groups_of("cpu", root)) take_cpus(group, limits);
  for (const fs::path& group : groups_of("memory", root)) take_memory(group, limits);
  return limits;
}

std::vector<GroupThrottling> group_throttling(const fs::path& root) {
  std::vector<GroupThrottling> found;
  for (const fs::path& group : groups_of("cpu", root)) {
    const auto periods = named_number_in(group / "cpu.stat", "nr_periods");
    const auto throttled = named_number_in(group / "cpu.stat", "nr_throttled");
    if (periods && throttled) found.push_back({*periods, *throttled});
  }
  return found;
}

int64_t threads_within(int64_t cpus, std::optional<double> quota) {
  const auto whole = static_cast<int64_t>(std::floor(quota.value_or(static_cast<double>(cpus))));
  return std::max<int64_t>(1, std::min(cpus, whole));
}

}  // namespace nearmetal
