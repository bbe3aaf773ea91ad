#include "reports/compare/comparison_row.h"
#include "reports/compare/work_text.h"
#include "reports/document/metric.h"
#include "reports/formats/benchmark_text.h"
#include "reports/json/json_writer.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

using json::Json;
using json::lines_of;

Json context_of(const RunSet& set) {
  std::string latest;
  for (const RunArm& arm : set.arms) {
    for (const SetRun& run : arm.runs) latest = std::max(latest, run.run.started_at);
  }
  Json context = {{"date", latest}, {"executable", "nearmetal"}};
  if (!set.environments.empty()) {
    context["host_name"] = set.environments[0].host_name;
    context["num_cpus"] = set.environments[0].logical_cpus;
  }
  return context;
}

}  // namespace

std::string google_benchmark_json(const RunSet& set) {
  constexpr double milliseconds = 1e3;
  Json benchmarks = Json::array();
  for (size_t family = 0; family < set.arms.size(); ++family) {
    const RunArm& arm = set.arms[family];
    const std::vector<const Run*> runs = complete_runs(arm);
    for (size_t repetition = 0; repetition < runs.size(); ++repetition) {
      const Run& run = *runs[repetition];
      const double step = milliseconds * mean_step_seconds(*run.window);
      benchmarks.push_back({{"name", "train/" + arm.name},
                            {"family_index", family},
                            {"per_family_instance_index", 0},
                            {"run_name", "train/" + arm.name},
                            {"run_type", "iteration"},
                            {"repetitions", runs.size()},
                            {"repetition_index", repetition},
                            {"threads", 1},
                            {"iterations", run.window->steps},
                            {"real_time", step},
                            {"cpu_time", step},
                            {"time_unit", "ms"},
                            {"items_per_second", *run.throughput}});
    }
  }
  return lines_of({{"context", context_of(set)}, {"benchmarks", benchmarks}});
}

std::string github_action_benchmark_json(const RunSet& set) {
  Json entries = Json::array();
  for (const RunArm& arm : set.arms) {
    const Metric& metric = throughput_metric(unit_of(arm));
    const SideSummary side = summary_of_arm(arm, metric);
    if (!side.geometric_mean) continue;
    const SetRun& run = arm.runs.front();
    Json entry = {{"name", arm.name + " (" + work_of(run) + ")"},
                  {"unit", metric.unit},
                  {"value", *side.geometric_mean}};
    if (side.interval) {
      entry["range"] = "± " + significant((side.interval->upper - side.interval->lower) / 2);
    }
    entry["extra"] = "n = " + std::to_string(side.runs) + ", 95 % interval; device " +
                     key_value(run, "device") + ": " + run.run.device_name;
    entries.push_back(entry);
  }
  return lines_of(entries);
}

}  // namespace nearmetal
