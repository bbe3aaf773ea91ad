#include "reports/document/metric.h"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace nearmetal {
namespace {

template <auto Member>
Maybe<double> slowest_step_time(const Run& run) {
  Maybe<double> slowest = Unknown{"the run has no rank"};
  for (const Rank& rank : run.ranks) {
    if (!rank.step_time) return Unknown{rank.step_time.reason};
    const double seconds = (*rank.step_time).*Member;
    slowest = slowest ? std::max(*slowest, seconds) : seconds;
  }
  return slowest;
}

Maybe<double> slowest_set_up(const Run& run) {
  Maybe<double> slowest = Unknown{"the run has no rank"};
  for (const Rank& rank : run.ranks) {
    if (!rank.set_up) return Unknown{rank.set_up.reason};
    const double seconds = rank.set_up->total_seconds;
    slowest = slowest ? std::max(*slowest, seconds) : seconds;
  }
  return slowest;
}

Maybe<double> throughput(const Run& run) { return run.throughput; }

constexpr std::array metrics = {
    Metric{"throughput_images_per_second", "images/s", "images/s", 1, true, throughput},
    Metric{"median_step_seconds", "s", "ms", 1e3, false,
           slowest_step_time<&StepTime::median_seconds>},
    Metric{"p95_step_seconds", "s", "ms", 1e3, false, slowest_step_time<&StepTime::p95_seconds>},
    Metric{"p99_step_seconds", "s", "ms", 1e3, false, slowest_step_time<&StepTime::p99_seconds>},
    Metric{"set_up_seconds", "s", "s", 1, false, slowest_set_up},
};

}  // namespace

std::span<const Metric> all_metrics() { return metrics; }

const Metric& metric_from(const std::string& name) {
  std::string names;
  for (const Metric& metric : metrics) {
    if (name == metric.name) return metric;
    names += std::string(names.empty() ? "" : ", ") + metric.name;
  }
  throw std::invalid_argument("there is no metric '" + name + "'; there are: " + names);
}

}  // namespace nearmetal
