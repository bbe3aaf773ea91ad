// What one rank does: prepare the program, train it, profile and verify where asked for.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "bench/cli/process_clock.h"
#include "bench/cli/terminal.h"
#include "bench/monitor/monitor.h"
#include "bench/run/conductor.h"
#include "bench/run/plan_source.h"
#include "bench/run/rank_report.h"
#include "comm/world.h"
#include "models/graph.h"
#include "models/program.h"
#include "reports/document/types.h"

namespace nearmetal {

struct RankTask {
  const RunConfig& config;  // nothing left to settle
  const Graph& graph;
  Backend& backend;
  const DeviceInfo& device;
  const PlanSource& plans;
  const ProcessClock& clock;
  const Terminal& terminal;
  const std::atomic<int>& stop;  // not 0: end early
  World& world;
  Teller* teller;        // null: no sweep started this job
  Conductor* conductor;  // the same, or this is not its rank 0
  int64_t sharers = 1;   // jobs that are meant to be on the GPU, or the CPUs, at once
  bool through_mps = false;
};

/// Prepares, trains and checks as far as it gets. An error of the device in the middle of training
/// ends the job where other ranks wait for this one's gradients. Throws as failure_of() does.
RankResult run_rank(const RankTask& task);

/// Why `work` failed, where the report says so: alone, or on all ranks by together(). Throws where
/// nothing was run because of a setting, and where one rank of several failed.
std::optional<std::string> failure_of(const World& world, const std::function<void()>& work);

}  // namespace nearmetal
