#include "reports/forecast/step_simulation.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace nearmetal {
namespace {

struct Sum {
  double start = 0, end = 0;
};

struct SimulatedRank {
  double time = 0;     // now
  double share = 0;    // of the last micro-batch that is computed
  double seconds = 0;  // that it takes with nothing beside it
  size_t sum = 0;      // the first that is not over by now
};

double drawn(const std::vector<double>& values, std::mt19937_64& engine) {
  return values.size() == 1 ? values[0] : values[engine() % values.size()];
}

// Computes up to a share. Every sum that began by then is known.
void compute(SimulatedRank& rank, double share, const std::vector<Sum>& sums, double slowing) {
  double left = (share - rank.share) * rank.seconds;
  rank.share = share;
  while (rank.sum < sums.size() && slowing > 0) {
    const Sum& sum = sums[rank.sum];
    const double before = std::max(0.0, sum.start - rank.time);
    if (left <= before) break;
    const double begin = std::max(rank.time, sum.start);
    const double beside = std::max(0.0, sum.end - begin);  // at most
    const double done = std::min(left - before, beside / (1 + slowing));
    rank.time = begin + done * (1 + slowing);
    left -= before + done;
    if (rank.time < sum.end) break;
    ++rank.sum;
  }
  rank.time += left;
}

}  // namespace

double ring_seconds(double bytes, double count, const Link& link) {
  if (count <= 1) return 0;
  return 2 * (count - 1) * (link.latency_seconds + bytes / count / link.bytes_per_second);
}

double tree_seconds(double bytes, double count, const Link& link) {
  if (count <= 1) return 0;
  return 2 * std::ceil(std::log2(count)) * link.latency_seconds + 2 * bytes / link.bytes_per_second;
}

double sum_seconds(const SimulatedJob& job, double bytes, int64_t ranks) {
  const auto inside = static_cast<double>(std::min(ranks, job.per_host));
  const double hosts = std::ceil(static_cast<double>(ranks) / inside);
  const auto fastest = [&](double count, const Link& link) {
    return std::min(ring_seconds(bytes, count, link), tree_seconds(bytes, count, link));
  };
  return fastest(inside, job.inside) + fastest(hosts, job.between);
}

double mean_step_seconds(const SimulatedJob& job, int64_t ranks, int64_t steps, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<double> speeds(static_cast<size_t>(ranks));
  for (double& speed : speeds) speed = drawn(job.speeds, engine);
  std::vector<SimulatedRank> all(speeds.size());
  std::vector<Sum> sums;
  for (int64_t step = 0; step < steps; ++step) {
    sums.clear();
    for (size_t i = 0; i < all.size(); ++i) {
      const double seconds = job.compute_seconds * speeds[i] * drawn(job.jitter, engine);
      all[i].time += static_cast<double>(job.accumulate - 1) * seconds;
      all[i] = {.time = all[i].time, .seconds = seconds};
    }
    double free = 0;
    for (const SentBucket& bucket : job.buckets) {
      double ready = free;
      for (SimulatedRank& rank : all) {
        compute(rank, bucket.ready, sums, job.slowing);
        ready = std::max(ready, rank.time);
      }
      free = ranks > 1 ? ready + sum_seconds(job, bucket.bytes, ranks) : 0;
      if (ranks > 1) sums.push_back({ready, free});
    }
    // What is computed behind the last bucket, such as the update, waits for all sums.
    for (SimulatedRank& rank : all) {
      rank.time = std::max(rank.time, free) + (1 - rank.share) * rank.seconds;
    }
  }
  double end = 0;
  for (const SimulatedRank& rank : all) end = std::max(end, rank.time);
  return end / static_cast<double>(steps);
}

}  // namespace nearmetal
