// Training steps of many ranks as events: each computes, its buckets of gradients become ready, and
// each bucket is summed once all ranks have it and the sum before is through. And how such jobs
// follow from the measured times of sums.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reports/forecast/forecast.h"
#include "reports/forecast/growth.h"

namespace nearmetal {

/// The time to sum over so many: each sends 2 (n - 1) / n of the bytes in 2 (n - 1) messages one
/// after another, or nearly twice the bytes in 2 log2 n rounds. 0 for one.
double ring_seconds(double bytes, double count, const Link& link);
double tree_seconds(double bytes, double count, const Link& link);

struct SentBucket {
  double bytes = 0;
  double ready = 1;  // share of the last micro-batch's computation after which it is
};

struct SimulatedJob {
  double compute_seconds = 0;         // of a micro-batch of a rank that is alone
  int64_t accumulate = 1;             // micro-batches; only the last one's gradients are sent
  std::vector<double> speeds{1};      // of ranks, as factors of their time: each has one of them
  std::vector<double> jitter{1};      // of steps, the same: each step has one of them
  std::vector<SentBucket> buckets{};  // in the order in which they are ready
  Link inside{}, between{};
  int64_t per_host = 1;
  double slowing = 0;  // of computation beside a sum: 0.1 takes 10 % longer

  bool crosses_hosts(int64_t ranks) const { return ranks > per_host; }
};

/// Sums inside hosts, where each rank has an equal part in the end, and of these parts between
/// hosts; each by the faster of ring and tree, as libraries choose.
double sum_seconds(const SimulatedJob& job, double bytes, int64_t ranks);

/// The mean over so many steps, of jobs whose ranks and steps are drawn by `seed`. Takes time in
/// proportion to steps x ranks x buckets.
double mean_step_seconds(const SimulatedJob& job, int64_t ranks, int64_t steps, uint64_t seed);

/// What a mean step of so many ranks, and so many a host if that is told, takes beyond computation:
/// waiting for the slowest rank, sums that no computation hides by their bytes and by their
/// latency, and computation that is slower beside sums.
StepParts exchange_parts(SimulatedJob job, const JobSize& size);

/// Arms that did the same work on the same number of ranks.
struct MeasuredSize : JobSize {
  std::string arm;
  SomeRuns runs;          // complete ones, at least one
  double throughput = 0;  // samples per second of all ranks

  /// Of a step; where the batch is not told of a sample of each rank.
  double step_seconds() const { return samples() * static_cast<double>(ranks) / throughput; }
};

using MeasuredSizes = std::vector<MeasuredSize>;  // by ranks

/// The sums of a run that tells how long each takes; null where no run of the size does.
const std::vector<Bucket>* timed_sums(const MeasuredSize& size);

/// Steps of several ranks by the measured times of their sums. In both jobs computation is slower
/// beside sums so that steps of the largest measured size take as long as they did.
struct ExchangeModel {
  SimulatedJob measured, asked;
  std::vector<std::string> assumptions;  // for readers

  /// Steps are those of `steps`; links are fitted to their sums, or where they have none, to those
  /// of `all`, which took place with nothing else going on. `per_host`: ranks. Throws
  /// std::invalid_argument where --gradient-type cannot be answered.
  ExchangeModel(const MeasuredSizes& steps, const MeasuredSizes& all,
                const ForecastRequest& request, int64_t per_host);

  /// From which bits per second and which latency on a step that is asked for takes at most this
  /// beyond computation, the rest of the network being as it is. Unknown where no network does.
  std::pair<Maybe<double>, Maybe<double>> enough(int64_t ranks, double seconds) const;
};

}  // namespace nearmetal
