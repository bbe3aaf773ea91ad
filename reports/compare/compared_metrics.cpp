#include "reports/compare/compared_metrics.h"

#include <algorithm>
#include <array>

namespace nearmetal {
namespace {

bool is_known(const Metric& metric, const ArmPair& pair) {
  return std::ranges::any_of(std::array{pair.base, pair.next}, [&](const RunArm* arm) {
    return arm != nullptr && std::ranges::any_of(arm->runs, [&](const SetRun& run) {
             return metric.value_of(run.run).value.has_value();
           });
  });
}

}  // namespace

const Metric& throughput_of(const ArmPair& pair) {
  const RunArm& arm = pair.base != nullptr ? *pair.base : *pair.next;
  const bool of_links = is_imported(arm) && arm.runs.front().run.communication;
  return of_links ? bus_bandwidth_metric() : throughput_metric(unit_of(arm));
}

bool is_throughput_alone(const CompareOptions& options) {
  return std::ranges::all_of(options.metrics,
                             [](const std::string& name) { return name == throughput_of_runs; });
}

std::vector<const Metric*> compared_metrics(const std::vector<ArmPair>& pairs,
                                            const CompareOptions& options) {
  std::vector<const Metric*> metrics;
  const auto add = [&](const Metric& metric) {
    if (std::ranges::find(metrics, &metric) == metrics.end()) metrics.push_back(&metric);
  };
  const auto add_named = [&](const std::string& name) {
    for (const ArmPair& pair : pairs) {
      if (name == throughput_of_runs) add(throughput_of(pair));
      if (name != all_of_runs) continue;
      for (const Metric* metric : all_metrics_of(sample_units)) {
        if (is_known(*metric, pair)) add(*metric);
      }
    }
    if (name != throughput_of_runs && name != all_of_runs) add(metric_from(name));
  };
  for (const std::string& name : options.metrics) add_named(name);
  if (options.metrics.empty()) add_named(throughput_of_runs);
  if (metrics.empty()) add(throughput_metric(SampleUnit::image));
  return metrics;
}

}  // namespace nearmetal
