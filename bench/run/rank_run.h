// What one rank does: prepare the program, train it, profile and verify where asked for.
#pragma once

#include <atomic>

#include "bench/cli/terminal.h"
#include "bench/environment/process_clock.h"
#include "bench/monitor/monitor.h"
#include "bench/run/conductor.h"
#include "bench/run/plan_source.h"
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
  Sharers sharers{};
};

/// In which gradients travel, of a job of so many ranks; empty: as they are computed.
std::optional<Precision> gradient_type_of(const RunConfig& config, int64_t world_size);
/// What the configuration asks of a program, nothing left to settle; alone, as rank `rank`, so that
/// gradients stay as computed.
ProgramOptions program_options(const RunConfig& config, const PlanSource& plans, int64_t rank);

/// Fills what was measured; `set_up` holds the times until the device was there. A check that does
/// not hold, and an error of the device in the middle of training, make the run failed; where other
/// ranks wait for this one's gradients, such an error ends the job. Throws what Backend::prepare()
/// throws, by together().
void run_rank(const RankTask& task, SetUp set_up, Run& run, Rank& rank);

}  // namespace nearmetal
