// The work of one rank: meet the others, prepare the program, train it, and check what came of it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "bench/cli/command_line.h"
#include "bench/cli/output.h"
#include "bench/cli/process.h"
#include "bench/cli/run_request.h"
#include "bench/monitor/monitor.h"
#include "bench/run/prepare_device.h"
#include "bench/run/rank_exchange.h"
#include "bench/run/rank_report.h"
#include "bench/run/sweep_control.h"
#include "comm/watchdog.h"
#include "comm/world.h"
#include "models/graph.h"

namespace nearmetal {

/// The state of a rank that is training, which another thread can report.
struct RunSoFar {
  TrainerProgress progress;
  Prepared prepared;  // once it is
  std::atomic<bool> is_prepared = false;
};

/// A rank of a job: what it was asked for, where it computes, and with whom.
struct RankTask {
  const RunRequest& request;
  const Context& context;
  const Terminal& terminal;
  World& world;
  ProgressReporter* reporter;  // null: no sweep started this job
  SweepControl* control;       // the same, or this is not its rank 0
  const Watchdog* watchdog;    // null: a sweep watches
  PreparedDevice device;
  RankStart start{};
  KernelSource kernels{};
  std::unique_ptr<RankPipeline> pipeline{};  // null: each rank has the whole network
  RunSoFar so_far{};

  const RunConfig& config() const { return device.config; }
  /// The graph that this rank computes.
  const Graph& part() const { return pipeline ? pipeline->part.graph : device.graph; }
  /// Its part of the parameters of the whole network.
  std::span<const float> own(std::span<const float> parameters) const {
    if (!pipeline) return parameters;
    const ParameterRange& range = pipeline->part.parameters;
    return parameters.subspan(range.begin, range.count);
  }
  /// The ranks that have the same part.
  World& replicas() const { return pipeline ? *pipeline->replicas : world; }
};

/// Settles what is left open, prepares, trains and checks as far as it gets. An error of the device
/// in the middle of training ends the job where other ranks wait for this one's gradients. Throws
/// where nothing was run because of a setting, and where one rank of several failed.
RankResult run_rank(RankTask& task);

/// Ends the job: the other ranks wait for this one and would do so for ever.
void abort_job(const RankTask& task, const std::string& what, const std::string& why);

/// Does work in which ranks wait for one another: a failure of one ends the whole job.
void or_abort(const RankTask& task, const char* what, const std::function<void()>& work);

}  // namespace nearmetal
