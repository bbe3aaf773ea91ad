// Training steps of many ranks as events: each computes, its buckets of gradients become ready, and
// each bucket is summed once all ranks have it and the sum before is through.
#pragma once

#include <cstdint>
#include <vector>

namespace nearmetal {

/// A way between ranks of a host, or between hosts.
struct Link {
  double bytes_per_second = 0;  // each way: of a rank, or of a host with all its ranks
  double latency_seconds = 0;   // of a message
};

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
};

/// Sums inside hosts, where each rank has an equal part in the end, and of these parts between
/// hosts; each by the faster of ring and tree, as libraries choose.
double sum_seconds(const SimulatedJob& job, double bytes, int64_t ranks);

/// The mean over so many steps, of jobs whose ranks and steps are drawn by `seed`. Takes time in
/// proportion to steps x ranks x buckets.
double mean_step_seconds(const SimulatedJob& job, int64_t ranks, int64_t steps, uint64_t seed);

}  // namespace nearmetal
