// Everything that a sweep starts, in its order, as plain data.
#pragma once

#include <string>
#include <vector>

#include "comm/launch/launch_command.h"
#include "comm/layout/layout.h"
#include "comm/layout/placement.h"
#include "models/gpu_part.h"
#include "reports/document/settings.h"

namespace nearmetal {

struct LaunchPlan {
  LayoutFile file;                    // nothing left to find
  std::vector<Placement> placements;  // by layout
  std::vector<Workload> workloads;    // by layout, defaults filled
  std::vector<Launch> launches;       // in the order of their start
  LaunchOptions options;
  bool conducted = true;  // by a sweep; else each job runs by itself and prints its report
  std::vector<UnsupportedArm> unsupported{};
  std::string source{};  // "FILE: " where layouts come from one, for messages
};

/// The command lines of a layout, one for each job, all to be started at once. The report of each
/// comes on its standard output.
std::vector<std::vector<std::string>> commands_of(const LaunchPlan& plan, size_t layout);

/// The part of its GPU that a job has which shares it by SharingMode::sm.
GpuPart gpu_part_of(const Placement& placement, const PlacedJob& job);

/// --gpu-part=INDEX:PERCENT,PERCENT,...
std::string flag_of(const GpuPart& part);

/// What a script calls the report: "2-1x1x2-run3-job1.report.json". Numbers count from 1; that of
/// the job is left out where there is one alone. But for `repeat`, which a script may still have to
/// expand, of letters, digits and harmless signs.
std::string report_name(const LaunchPlan& plan, size_t layout, const std::string& repeat,
                        size_t job);

/// The hosts that any layout takes, in the order of the file.
std::vector<Host> hosts_taken(const LaunchPlan& plan);

/// Of one launch, at a time.
int64_t most_ranks_on_a_host(const LaunchPlan& plan);

}  // namespace nearmetal
