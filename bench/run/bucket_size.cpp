#include "bench/run/bucket_size.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "reports/statistics/statistics.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

constexpr int64_t sizes_mib[] = {0, 4, 8, 16, 32};
constexpr double seconds_per_try = 0.5;
constexpr double fewest_tried_steps = 2, most_tried_steps = 20;  // beside the first

double step_seconds(Program& program) {
  program.enqueue_step();
  return program.wait_step().seconds;
}

int64_t maximum_of_ranks(World& world, double value) {
  std::array<int64_t, 1> largest{std::llround(value)};
  world.maximum(largest);
  return largest[0];
}

// Of the slowest rank.
double median_step_seconds(World& world, Program& program) {
  const double first = step_seconds(program);
  const int64_t steps = maximum_of_ranks(
      world, std::clamp(seconds_per_try / first, fewest_tried_steps, most_tried_steps));
  std::vector<double> seconds;
  for (int64_t i = 0; i < steps; ++i) seconds.push_back(step_seconds(program));
  return 1e-9 * static_cast<double>(maximum_of_ranks(world, 1e9 * median(seconds)));
}

}  // namespace

std::vector<TriedBucket> try_buckets(World& world, Program& program, AllReduce& all_reduce,
                                     std::span<const float> parameters) {
  std::vector<TriedBucket> tried;
  for (const int64_t size : sizes_mib) tried.push_back({size, INFINITY});
  const auto attempt = [&](TriedBucket& bucket) {
    program.exchange_gradients(all_reduce, bucket.bucket_mib << 20);
    program.restart(parameters);
    bucket.step_seconds = std::min(bucket.step_seconds, median_step_seconds(world, program));
  };
  std::for_each(tried.begin(), tried.end(), attempt);
  std::for_each(tried.rbegin(), tried.rend(), attempt);
  return tried;
}

const TriedBucket& fastest(const std::vector<TriedBucket>& tried) {
  return *std::min_element(tried.begin(), tried.end(), [](const auto& a, const auto& b) {
    return a.step_seconds < b.step_seconds;
  });
}

std::string text_of(const std::vector<TriedBucket>& tried) {
  std::vector<std::string> texts;
  for (const TriedBucket& bucket : tried) {
    const std::string size =
        bucket.bucket_mib == 0 ? "all at once" : std::to_string(bucket.bucket_mib) + " MiB";
    texts.push_back(size + " " + significant(1e3 * bucket.step_seconds) + " ms");
  }
  return joined(texts);
}

}  // namespace nearmetal
