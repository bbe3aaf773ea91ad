// The work of one rank: meet the others, prepare the program, train it, and check what came of it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/cli/process.h"
#include "bench/cli/output.h"
#include "bench/monitor/monitor.h"
#include "bench/run/prepare_device.h"
#include "bench/run/rank_pipeline.h"
#include "bench/run/rank_report.h"
#include "bench/run/sweep_control.h"
#include "comm/world.h"
#include "models/graph.h"
#include "models/program.h"
#include "reports/document/types.h"

namespace nearmetal {

/// The state of a rank that is training, which another thread can report.
struct RunSoFar {
  TrainerProgress progress;
  Prepared prepared;  // once it is
  std::atomic<bool> is_prepared = false;
};

struct RankTask {
  const RunConfig& config;  // nothing left to settle
  const Graph& graph;       // of the whole network
  Backend& backend;
  const DeviceInfo& device;
  const KernelSource& kernels;
  const ProcessClock& clock;
  const Terminal& terminal;
  const std::atomic<int>& stop;  // not 0: end early
  World& world;
  RunSoFar& so_far;
  ProgressReporter* reporter;  // null: no sweep started this job
  SweepControl* control;       // the same, or this is not its rank 0
  int64_t sharing_jobs = 1;    // jobs that are meant to be on the GPU, or the CPUs, at once
  bool through_mps = false;
  RankPipeline* pipeline = nullptr;  // null: each rank has the whole network

  /// The graph that this rank computes.
  const Graph& part() const { return pipeline != nullptr ? pipeline->part.graph : graph; }
  /// Its part of the parameters of the whole network.
  std::span<const float> own(std::span<const float> parameters) const {
    if (pipeline == nullptr) return parameters;
    const ParameterRange& range = pipeline->part.parameters;
    return parameters.subspan(range.begin, range.count);
  }
  /// The ranks that have the same part.
  World& replicas() const { return pipeline != nullptr ? *pipeline->replicas : world; }
};

/// Prepares, trains and checks as far as it gets. An error of the device in the middle of training
/// ends the job where other ranks wait for this one's gradients. Throws as failure_of() does.
RankResult run_rank(const RankTask& task);

/// Why `work` failed, where the report says so: alone, or on all ranks by together(). Throws where
/// nothing was run because of a setting, and where one rank of several failed.
std::optional<std::string> failure_of(const World& world, const std::function<void()>& work);

/// Ends the job: the other ranks wait for this one and would do so for ever.
void abort_job(const RankTask& task, const std::string& what, const std::string& why);

/// Does work in which ranks wait for one another: a failure of one ends the whole job.
void or_abort(const RankTask& task, const char* what, const std::function<void()>& work);

/// A way to sum the gradients.
struct Exchange {
  std::unique_ptr<AllReduce> all_reduce;
  const Collective* collective = nullptr;
};

/// The exchange that the configuration asks for, or several of which the fastest is to be found;
/// none where each rank trains for itself. Collective. A hierarchical one over a single host is
/// NCCL alone. `task` must outlive the result.
std::vector<Exchange> join_exchanges(const RankTask& task);

/// Puts the fastest of the candidates into the program's step, in buckets of the size that was
/// asked for or that is fastest, and ends the others.
Communication prepare_exchange(const RankTask& task, Program& program,
                               std::vector<Exchange>& candidates,
                               std::span<const float> parameters);

}  // namespace nearmetal
