#include "bench/run/check_inference.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <vector>

namespace nearmetal {
namespace {

constexpr int64_t most_latency_steps = 1000, fewest_latency_steps = 20;
constexpr double latency_seconds = 5;

// Takes steps one at a time, each from the call that queues it to its end as the host sees it. None
// where `stop` ended it.
std::optional<Latency> measure_latency(Program& program, const std::atomic<int>& stop) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  seconds.reserve(most_latency_steps);
  const Clock::time_point start = Clock::now();
  const auto goes_on = [&] {
    const auto steps = std::ssize(seconds);
    const double elapsed = std::chrono::duration<double>(Clock::now() - start).count();
    return steps < fewest_latency_steps ||
           (steps < most_latency_steps && elapsed < latency_seconds);
  };
  while (goes_on()) {
    if (stop != 0) return std::nullopt;
    const Clock::time_point begin = Clock::now();
    program.enqueue_step();
    program.wait_step();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return latency_of(seconds);
}

// Finite logits alone prove little: a network that lost its weights leaves the same value
// everywhere.
bool are_sound(const std::vector<float>& logits) {
  return std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); }) &&
         std::ranges::adjacent_find(logits, std::not_equal_to<>()) != logits.end();
}

}  // namespace

void check_inference(Program& program, int64_t sharing_jobs, const std::atomic<int>& stop,
                     Checks& checks) {
  checks.outputs_finite = are_sound(program.logits());
  if (sharing_jobs > 1) {
    checks.latency = Unknown{"jobs that run at once end before it could be measured"};
    return;
  }
  if (const auto latency = measure_latency(program, stop)) {
    checks.latency = *latency;
  } else {
    checks.interrupted = "the latency";
  }
}

}  // namespace nearmetal
