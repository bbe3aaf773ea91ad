// Sockets, cores, NUMA nodes and clocks of the CPUs, and what the system allows this process.
#pragma once

#include <filesystem>

#include "reports/document/environment.h"

namespace nearmetal {

/// Sockets, cores and NUMA nodes by hwloc. Where `root` is not "/", hwloc reads a copy of a
/// system's files.
Processor find_processor(const std::filesystem::path& root);

Limits find_limits(const std::filesystem::path& root);

}  // namespace nearmetal
