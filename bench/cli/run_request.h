// The request of `run`, and of commands that prepare or train alike.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bench/cli/command_line.h"
#include "comm/layout/layout.h"
#include "comm/watchdog.h"
#include "models/gpu_share.h"
#include "reports/document/settings.h"
#include "reports/document/types.h"

namespace nearmetal {

/// RATE[,NETWORK]. Throws std::invalid_argument for another text.
LinkClaim expected_link(const std::string& text);

/// The configuration is as typed: what depends on the device is still open.
struct RunRequest : Workload {
  Expectation expected;
  bool emulated = false;                // this run is part of what emulates several machines
  bool conducted = false;               // by the sweep that started this process
  bool no_report = false;               // the table alone
  std::string arm = "run";              // how the report calls it
  std::optional<GridPoint> grid_point;  // of that arm
  bool through_mps = false;
  int64_t sharing_jobs = 1;  // jobs that are meant to be on the GPU, or the CPUs, at once
  std::optional<GpuShare> gpu_share;
  // CIDR of MPI's traffic, which NCCL's and UCX's take, too; or "^" and CIDRs that all leave out.
  std::optional<std::string> network;
  double join_seconds = default_patience_seconds;  // of a rank for the others
};

// Each adds options that fill `request`.

/// The settings that a command takes (in_run, in_sweep, ...), in the order of help; `request` keeps
/// which were given.
void add_settings(Options& options, RunRequest& request, unsigned command);

/// --quiet, under the heading of a group.
inline void add_quiet(Options& options, RunRequest& request, SettingGroup group) {
  options.toggle("--quiet", request.config.quiet, "print no remarks").group = to_string(group);
}

void add_run_options(Options& options, RunRequest& request);

/// How a sweep speaks with a process that it starts; not shown, as are options added afterwards.
void add_conducted_options(Options& options, RunRequest& request);

}  // namespace nearmetal
