// Everything that a sweep starts, in its order, as plain data.
#pragma once

#include <string>
#include <vector>

#include "comm/launch_command.h"
#include "comm/layout.h"
#include "comm/placement.h"

namespace nearmetal {

struct LaunchPlan {
  LayoutFile file;                                      // hosts and launcher settled
  std::vector<Placement> placements;                    // by layout
  std::vector<std::vector<std::string>> run_arguments;  // by layout: "run", its options
  std::vector<Launch> launches;                         // in the order of their start
  LaunchOptions options;
};

/// Command lines, one for each job of the launch, all to be started at once. Rank 0 of each writes
/// its report where it runs, in the folder of the launcher: report_name().
std::vector<std::vector<std::string>> commands_of(const LaunchPlan& plan, const Launch& launch);

/// "2-1x1x2-run3-job1.report.json": numbers count from 1, that of the job is left out where there is
/// one alone. Safe in any file system.
std::string report_name(const LaunchPlan& plan, const Launch& launch, size_t job);

}  // namespace nearmetal
