#include "reports/compare/compared_metrics.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "reports/compare/work_text.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

bool is_known(const Metric& metric, const ArmPair& pair) {
  return std::ranges::any_of(std::array{pair.base, pair.next}, [&](const RunArm* arm) {
    return arm != nullptr && std::ranges::any_of(arm->runs, [&](const SetRun& run) {
             return metric.value_of(run.run).value.has_value();
           });
  });
}

bool infers(const ArmPair& pair) {
  return std::ranges::any_of(std::array{pair.base, pair.next}, [](const RunArm* arm) {
    return arm != nullptr && std::ranges::any_of(arm->runs, [](const SetRun& run) {
             return told_value(run, "inference") == "yes";
           });
  });
}

bool is_of_latency(const Metric& metric) {
  return std::ranges::any_of(latency_metrics(), [&](const Metric& other) {
    return std::string_view(other.name) == metric.name;
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

std::vector<const Metric*> metrics_of_pair(const std::vector<ArmPair>& pairs, const ArmPair& pair,
                                           const std::vector<const Metric*>& metrics) {
  std::vector<const Metric*> found = metrics;
  if (!infers(pair) && std::ranges::any_of(pairs, infers)) {
    std::erase_if(found, [](const Metric* metric) { return is_of_latency(*metric); });
  }
  return found;
}

std::optional<Warning> note_of_rows_left_out(const std::vector<ArmPair>& pairs,
                                             const std::vector<const Metric*>& metrics) {
  std::vector<std::string> names, arms;
  for (const Metric* metric : metrics) {
    if (is_of_latency(*metric)) names.emplace_back(metric->name);
  }
  for (const ArmPair& pair : pairs) {
    if (metrics_of_pair(pairs, pair, metrics).size() < metrics.size()) arms.push_back(pair.name);
  }
  if (arms.empty()) return std::nullopt;
  return Warning{"not_of_inference",
                 "no row of " + joined(names) + " for " + joined(arms) + ": it is of inference"};
}

}  // namespace nearmetal
