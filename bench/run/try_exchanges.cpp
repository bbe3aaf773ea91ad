#include "bench/run/try_exchanges.h"

#include <algorithm>
#include <cmath>

#include "bench/run/together.h"
#include "reports/document/collectives.h"
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

double of_slowest_rank(World& world, double seconds) {
  return 1e-9 * static_cast<double>(maximum_of_ranks(world, std::llround(1e9 * seconds)));
}

// The median of the slowest rank.
double median_step_seconds(World& world, Program& program) {
  const double first = step_seconds(program);
  const int64_t steps = maximum_of_ranks(
      world,
      std::llround(std::clamp(seconds_per_try / first, fewest_tried_steps, most_tried_steps)));
  std::vector<double> seconds;
  for (int64_t i = 0; i < steps; ++i) seconds.push_back(step_seconds(program));
  return of_slowest_rank(world, median(seconds));
}

// The time of a step, over so many that are queued as in the timed window.
double median_of_steps(Program& program, int64_t steps) {
  const int64_t ahead = program.max_steps_in_flight();
  std::vector<double> seconds;
  for (int64_t step = 0; step < steps + ahead; ++step) {
    if (step >= ahead) seconds.push_back(program.wait_step().seconds);
    if (step < steps) program.enqueue_step();
  }
  return median(seconds);
}

std::string milliseconds(double seconds) { return significant(1e3 * seconds) + " ms"; }

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
  std::ranges::for_each(tried, attempt);
  std::for_each(tried.rbegin(), tried.rend(), attempt);
  return tried;
}

std::string text_of(const std::vector<TriedBucket>& tried) {
  std::vector<std::string> texts;
  for (const TriedBucket& bucket : tried) {
    const std::string size =
        bucket.bucket_mib == 0 ? "all at once" : std::to_string(bucket.bucket_mib) + " MiB";
    texts.push_back(size + " " + milliseconds(bucket.step_seconds));
  }
  return joined(texts);
}

std::vector<TriedAllReduce> try_all_reduces(World& world, Program& program,
                                            std::span<const Exchange> candidates,
                                            int64_t bucket_bytes, std::span<const float> parameters,
                                            const TryLength& length) {
  std::vector<TriedAllReduce> tried(candidates.size());
  const auto steps_in = [&](double seconds, double step) {
    return maximum_of_ranks(world, std::max<int64_t>(1, std::llround(seconds / step)));
  };
  double settling = length.warm_up + length.settling;
  const auto take_turn = [&](size_t number) {
    program.exchange_gradients(*candidates[number].all_reduce, bucket_bytes);
    program.restart(parameters);
    const double first = median_of_steps(program, 2);
    median_of_steps(program, steps_in(settling, first));
    settling = length.settling;
    const double median = median_of_steps(program, steps_in(length.measured, first));
    constexpr double turns = 2;
    tried[number].all_reduce = candidates[number].collective->kind;
    tried[number].step_seconds += of_slowest_rank(world, median) / turns;
  };
  for (size_t i = 0; i < candidates.size(); ++i) take_turn(i);
  for (size_t i = candidates.size(); i-- > 0;) take_turn(i);
  return tried;
}

std::string choice_text(const std::vector<TriedAllReduce>& tried) {
  if (tried.empty()) return "";
  const TriedAllReduce& taken = fastest(tried);
  std::vector<std::string> others;
  for (const TriedAllReduce& other : tried) {
    if (&other != &taken) others.push_back(milliseconds(other.step_seconds));
  }
  return std::string("--all-reduce auto takes ") + collective_for(taken.all_reduce, true).title +
         ": " + milliseconds(taken.step_seconds) + " instead of " + joined(others);
}

}  // namespace nearmetal
