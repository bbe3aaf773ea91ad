// How long a step of many ranks takes: as events, where it is known what sums take; and by the laws
// of growth that fit the sizes that were measured, where it is not.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "reports/forecast/forecast.h"

namespace nearmetal {

struct JobSize {
  int64_t ranks = 1;
  int64_t per_host = 0;    // ranks; 0: not told
  double batch = 0;        // of a rank and micro-batch; 0: not told
  int64_t accumulate = 1;  // micro-batches of a step

  double batch_or_one() const { return batch > 0 ? batch : 1; }
  /// Of a rank in a step.
  double samples() const { return batch_or_one() * static_cast<double>(accumulate); }
};

struct StepPoint {
  JobSize size;
  double seconds = 0;
};

/// What is held of a machine beside the law of growth. All are equally likely at first.
struct Hypothesis {
  int64_t per_host = 1;  // ranks, of sizes that do not tell
  bool slows = false;    // what several ranks cost is slower work; else it is there once a step
  bool has_fixed_cost = false;          // each micro-batch, which sizes of one batch do not tell
  std::vector<double> known_seconds{};  // of each point, beside what is fitted; empty: none
};

/// Parts of a step: computation, the fixed cost of a micro-batch, cost of several ranks of a host
/// and of several hosts.
using StepParts = std::array<double, 4>;

template <size_t count>
double total_seconds(const std::array<double, count>& parts) {
  return std::accumulate(parts.begin(), parts.end(), 0.0);
}

struct Possibility {
  bool slows = false;  // as its hypothesis has it
  double noise = 1;    // of a run, a factor of its time
  StepParts seconds{};
};

/// Step time = samples x a + accumulate x b + known + c x g(ranks of a host) + d x g(hosts), where
/// g(n) = (n^p - 1) / (2^p - 1): what is there once ranks exchange (p far below 0), what a ring
/// carries (-1), rounds of a tree (0), n - 1 (1). b, c and d are not negative. docs/forecast.md
/// says what is held of them before there are points, and how far points and forecasts are off.
/// Always draws the same possibilities from the posterior.
class Growth {
 public:
  /// Of points by ranks. Throws std::invalid_argument without any.
  Growth(std::vector<StepPoint> points, std::vector<Hypothesis> hypotheses, double deviation,
         double usual_cost);

  /// Without what is known, which the caller adds by hypothesis; equally likely, in the order of p.
  std::vector<Possibility> at(const JobSize& size) const;
  double deviation() const;  // the mean one

 private:
  // Seconds of a sample, of a micro-batch, of ranks of a host, and of hosts; p; the deviation; and
  // the hypothesis, which is the whole number below.
  using Draw = std::array<double, 7>;
  const Hypothesis& hypothesis_of(const Draw& draw) const {
    return hypotheses_[static_cast<size_t>(draw.back())];
  }
  StepParts parts_of(const JobSize& size, const Draw& draw) const;
  double log_posterior(const Draw& draw) const;

  std::vector<StepPoint> points_;
  std::vector<Hypothesis> hypotheses_;
  double least_deviation_ = 0, usual_seconds_ = 0;
  std::vector<Draw> draws_;  // by p
};

// Training steps of many ranks as events: each computes, its buckets of gradients become ready, and
// each bucket is summed once all ranks have it and the sum before is through.

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
