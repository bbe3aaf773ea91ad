#include "bench/run/window_warnings.h"

#include <algorithm>
#include <cmath>

#include "reports/statistics/statistics.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

constexpr double clocks_may_differ_by = 0.02;
constexpr double clock_noise_seconds = 0.005;  // of one look at the host's clock among others
constexpr double may_be_late_by_steps = 2;     // of three in flight
constexpr int64_t fewest_for_drift = 10;       // steps; among fewer, one outlier is a trend
constexpr double stalled_above = 10;           // times the median step,
constexpr double stalled_share = 0.01;         // and so much of the window
constexpr double duration_may_differ_by = 0.1;

void add_warning(Run& run, const std::string& code, const std::string& text,
                 std::optional<Figure> figure = {}) {
  run.warnings.push_back({code, text, figure});
}

void warn_of_warm_up(const WarmUp& warm_up, Run& run) {
  if (warm_up.steady) return;
  const std::string after =
      " after " + counted(warm_up.steps, "warm-up step") + "; a longer --warmup may help";
  if (warm_up.drift) {
    const double halves = warm_up.halves_difference.value.value_or(0);
    const double larger = std::abs(halves) > std::abs(*warm_up.drift) ? halves : *warm_up.drift;
    return add_warning(run, "not_steady", "step times were not steady" + after,
                       Figure{larger, warm_up.limit, FigureUnit::share});
  }
  add_warning(
      run, "steadiness_unknown",
      "the steadiness of step times is unknown" + after + " (" + warm_up.drift.reason + ")");
}

void warn_of_stall(std::span<const double> step_seconds, Run& run) {
  const auto longest = std::ranges::max_element(step_seconds);
  const double typical = median(step_seconds);
  if (*longest <= stalled_above * typical) return;
  if (*longest - typical <= stalled_share * run.window->seconds) return;
  add_warning(run, "stall",
              "step " + std::to_string(longest - step_seconds.begin()) + " of the window took " +
                  significant(*longest, 3) + " s, " + significant(*longest / typical, 3) +
                  " times the median: something held it up",
              Figure{*longest / typical, stalled_above, FigureUnit::times});
}

// A window of whole steps cannot meet it better than by its longest.
void warn_of_duration(const RunConfig& config, std::span<const double> step_seconds, Run& run) {
  if (config.steps) return;
  const double asked = config.duration_seconds;
  const double off = std::abs(run.window->seconds - asked);
  if (off <= std::max(duration_may_differ_by * asked, std::ranges::max(step_seconds))) return;
  add_warning(run, "duration",
              "the timed window took " + significant(run.window->seconds, 3) + " s instead of " +
                  significant(asked, 3) + " s (" +
                  signed_percent(run.window->seconds / asked - 1, 1) + "): steps became " +
                  (run.window->seconds < asked ? "faster" : "slower") +
                  " than those of the warm-up",
              Figure{run.window->seconds / asked - 1, duration_may_differ_by, FigureUnit::share});
}

// A driver whose queue is full holds up the call that queues a step until those before it are
// through, so that the host sees the window begin late; it ends with nothing left to queue.
void warn_of_clocks(const Rank& rank, std::span<const double> step_seconds, Run& run) {
  const double seconds = run.window->seconds;
  const double difference = *rank.host_window_seconds - seconds;
  double allowed = std::max(clock_noise_seconds, clocks_may_differ_by * seconds);
  if (difference < 0) {
    allowed = std::max(allowed, may_be_late_by_steps * std::ranges::max(step_seconds));
  }
  if (std::abs(difference) <= allowed) return;
  add_warning(run, "clocks_differ",
              "the host's clock differs from the sum of the window's steps by " +
                  percent(difference / seconds, 2),
              Figure{difference / seconds, allowed / seconds, FigureUnit::share});
}

void warn_of_drift(const WarmUp& warm_up, std::span<const double> step_seconds, Run& run) {
  const double change = relative_change(step_seconds).value_or(0);
  if (run.window->steps >= fewest_for_drift && std::abs(change) > warm_up.limit) {
    add_warning(run, "drift",
                "step times changed by " + percent(change, 2) + " over the timed window",
                Figure{change, warm_up.limit, FigureUnit::share});
  }
}

// Such as a ring over several hosts waits for; counted of the whole host.
void warn_of_network(const Rank& rank, Run& run) {
  if (!rank.monitoring) return;
  std::vector<std::string> ports;
  int64_t errors = 0;
  for (const RdmaTraffic& traffic : rank.monitoring->rdma_traffic) {
    if (traffic.errors.value.value_or(0) == 0) continue;
    errors += *traffic.errors;
    ports.push_back(std::to_string(*traffic.errors) + " at " + traffic.rdma_device + " port " +
                    std::to_string(traffic.port));
  }
  if (ports.empty()) return;
  add_warning(run, "rdma_errors",
              "errors of the link, or packets lost, repeated or out of order in the window: " +
                  joined(ports),
              Figure{static_cast<double>(errors), 0, FigureUnit::count});
}

}  // namespace

void warn_of_window(const RunConfig& config, const TrainerResult& result, const Rank& rank,
                    Run& run) {
  const auto step_seconds = std::span(rank.step_seconds).subspan(result.window_first_step);
  warn_of_warm_up(*result.warm_up, run);
  warn_of_drift(*result.warm_up, step_seconds, run);
  warn_of_clocks(rank, step_seconds, run);
  warn_of_stall(step_seconds, run);
  warn_of_network(rank, run);
  if (result.complete()) warn_of_duration(config, step_seconds, run);
}

}  // namespace nearmetal
