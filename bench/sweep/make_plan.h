// From what the user asked for to everything that a sweep starts.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/command_line.h"
#include "comm/launch/launch_plan.h"

namespace nearmetal {

/// Reads the layout file or the short forms, finds the hosts, and places all ranks. Without either:
/// one node with 1, 2, 4, ... all GPUs of this machine, or 1, 2, 4, ... all of several hosts. Of
/// `line` it takes `plan` and `run_flags`, which stand over the workload of the file. Throws
/// std::invalid_argument with file, JSON pointer and reason.
LaunchPlan make_plan(const CommandLine& line);

/// The configuration of a layout's ranks, defaults filled.
RunConfig run_config(const LaunchPlan& plan, size_t layout);

}  // namespace nearmetal
