// The plans of a program: which kernel does each operation, by a report, the plan cache, or timing.
#pragma once

#include <string>
#include <vector>

#include "models/program.h"
#include "reports/document/types.h"

namespace nearmetal {

struct KernelSource {
  std::vector<KernelChoice> known;
  bool pinned = false;            // exactly these
  std::string cache;              // path, empty: none
  std::string context;            // of the cache
  std::vector<Warning> warnings;  // of a cache that cannot be used
};

/// The plans of the first run that has any. Throws InvalidReport, or std::invalid_argument where
/// there is none.
std::vector<KernelChoice> pinned_kernel_choices(const std::string& place);

/// --plans REPORT pins those of its first run that has any; else those of the plan cache are taken,
/// and config.plan_cache says which it is. Throws InvalidReport or std::invalid_argument for a
/// report to pin.
KernelSource find_kernel_choices(RunConfig& config, const DeviceInfo& device);

/// The place (REPORT or REPORT#ARM) that --plans gets for a job of `config`. Among arms that did
/// the same work it is the one of that name, else the first. Throws InvalidReport, or
/// std::invalid_argument where none did, or where the batch is still to be found.
std::string place_of_kernel_choices(const RunConfig& config, const std::string& arm);

/// Keeps plans that are new. Warns of a cache that cannot be written, as the next run tunes again,
/// and of kernels of this program that were refused.
std::vector<Warning> keep_choices(const KernelSource& source,
                                  const std::vector<KernelChoice>& choices);

/// Warns of a job of several ranks in which kernels were timed on a GPU that cannot time them
/// apart, as the rank that timed them is slower afterwards (docs/notes/step_speed.md).
std::vector<Warning> warnings_of_timing(const KernelSource& source,
                                        const std::vector<KernelChoice>& choices,
                                        const DeviceInfo& device, int ranks);

}  // namespace nearmetal
