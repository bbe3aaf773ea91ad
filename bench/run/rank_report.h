// The report of one rank, made at once from what was asked, found, trained and checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/run/prepare_device.h"
#include "bench/run/trainer.h"
#include "models/graph.h"
#include "models/program.h"
#include "reports/document/types.h"

namespace nearmetal {

/// The facts of a rank before it prepares its program.
struct RankStart {
  std::vector<std::string> argv;
  std::string started_at;  // RFC 3339, UTC
  int64_t rank = 0;
  int64_t world_size = 1;
  Environment environment;
  Binding binding{};
  SetUp set_up{};                   // until the device was there
  std::vector<Warning> warnings{};  // of the plan cache
};

/// The outcome of preparing the program. Times are in seconds since the process started.
struct Prepared {
  double begin_seconds = 0;
  double end_seconds = 0;
  std::vector<KernelChoice> kernel_choices;
  int64_t device_bytes = 0;
  std::optional<Communication> communication;  // as prepared; none: no gradients are exchanged
  std::vector<Warning> warnings;               // of the plan cache
  std::optional<RankStage> stage{};            // of a pipeline, as prepared
  std::string stage_library{};                 // joins it to its neighbours
};

/// The checks after a complete window, where they were asked for.
struct Checks {
  std::optional<int64_t> other_replica;  // first rank with other parameters or momentum; 0: none
  Maybe<Latency> latency = Unknown{"the run ended before"};
  std::optional<bool> outputs_finite;  // of inference
  std::optional<Profile> profile;
  std::optional<RankProbes> probes;
  std::optional<Verify> verify;
  std::vector<DigestGroup> digests{};
  std::optional<std::string> interrupted;  // the check that a stop ended, as "--verify"
  std::optional<std::vector<BucketTest>> bucket_tests;
  std::optional<BoundaryTest> boundary_test{};
  std::vector<TaskMark> marks;         // of a stage's last step
  std::optional<std::string> failure;  // of the device or a library
};

/// The part of its work that a rank completed.
struct RankResult {
  std::optional<Prepared> prepared;
  std::optional<TrainerResult> trained;
  double first_step_end_seconds = 0;  // since the process started; only with a step
  std::optional<Monitoring> monitoring;
  Checks checks;
  Maybe<std::vector<std::string>> mpi_transports{Unknown{"the run ended before"}};
  std::optional<std::string> failure;  // what kept it from going on
};

/// A run of this network of which nothing is measured, for this reason.
Run unmeasured_run(const Graph& graph, const RunConfig& config, const Unknown& why);

/// One arm with one run with one rank. A run whose loss is not finite, whose device fails or that
/// does not pass a check has failed and has no throughput; one that was stopped is partial, with
/// the figures of what was measured. What was not reached is unknown.
Report make_rank_report(const RunRequest& request, const PreparedDevice& device,
                        const RankStart& start, const RankResult& result);

}  // namespace nearmetal
