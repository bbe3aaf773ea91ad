// What the kernel tells of a process in /proc/PID/stat.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace nearmetal {

struct ProcessStat {
  std::string name;
  int parent = 0;
  double cpu_ticks = 0;    // used so far, of user and system
  double start_ticks = 0;  // since boot
};

/// None where the file is not there or holds something else.
std::optional<ProcessStat> process_stat(const std::filesystem::path& file);

}  // namespace nearmetal
