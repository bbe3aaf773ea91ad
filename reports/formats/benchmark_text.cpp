#include "reports/formats/benchmark_text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <map>

#include "reports/compare/comparison_row.h"
#include "reports/compare/scaling.h"
#include "reports/compare/work_text.h"
#include "reports/document/metric.h"
#include "reports/text/text.h"
#include "reports/text/text_table.h"

namespace nearmetal {
namespace {

bool is_complete(const Run& run) {
  return run.status == Status::complete && run.window && run.throughput;
}

// One word; a '-' would begin the number of processors.
std::string go_name(const std::string& text) {
  std::string name;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                       std::string("_.:,+*|()#").find(c) != std::string::npos;
    std::array<char, 4> escaped{};
    std::snprintf(escaped.data(), escaped.size(), "%%%02X", static_cast<unsigned char>(c));
    name += plain ? std::string(1, c) : escaped.data();
  }
  return name;
}

std::string label_value(const std::string& text) {
  std::string value;
  for (const char c : text) {
    if (c == '\\' || c == '"') value += '\\';
    value += c == '\n' ? "\\n" : std::string(1, c);
  }
  return "\"" + printable(value) + "\"";
}

struct Sample {
  std::string labels;
  double value = 0;
};

void print_family(std::ostream& out, const std::string& name, const std::string& help,
                  const std::vector<Sample>& samples) {
  if (samples.empty()) return;
  out << "# HELP nearmetal_" << name << ' ' << help << "\n# TYPE nearmetal_" << name << " gauge\n";
  for (const Sample& sample : samples) {
    out << "nearmetal_" << name << '{' << sample.labels << "} " << exact(sample.value) << '\n';
  }
}

// The arm, and what its runs did: an arm of another report may have the same name.
std::string labels_of(const RunArm& arm) {
  std::string labels = "arm=" + label_value(arm.name);
  if (arm.runs.empty()) return labels;
  for (const char* field : told_fields) {
    labels += std::string(",") + field + "=" + label_value(told_value(arm.runs.front(), field));
  }
  return labels;
}

std::vector<const Metric*> metrics_of_set(const RunSet& set) {
  const std::vector<SampleUnit> units = units_of(set);
  auto metrics = metrics_of(units.empty() ? std::vector{SampleUnit::image} : units);
  const bool any_latency = std::ranges::any_of(set.arms, [](const RunArm& arm) {
    return std::ranges::any_of(arm.runs, [](const SetRun& run) { return tells_latency(run.run); });
  });
  if (!any_latency) return metrics;
  for (const Metric& metric : latency_metrics()) metrics.push_back(&metric);
  return metrics;
}

void print_metric(std::ostream& out, const RunSet& set, const Metric& metric) {
  std::vector<Sample> means;
  std::vector<Sample> bounds;
  for (const RunArm& arm : set.arms) {
    const SideSummary side = summary_of_arm(arm, metric);
    const std::string label = labels_of(arm);
    if (side.geometric_mean) means.push_back({label, *side.geometric_mean});
    if (!side.interval) continue;
    bounds.push_back({label + ",bound=\"lower\"", side.interval->lower});
    bounds.push_back({label + ",bound=\"upper\"", side.interval->upper});
  }
  const std::string name = metric.name;
  print_family(out, name, "Geometric mean over complete runs.", means);
  print_family(out, name + "_interval", "Bounds of the 95 % interval of that mean.", bounds);
}

void print_scaling(std::ostream& out, const RunSet& set) {
  std::vector<Sample> speedups, speedup_bounds, efficiencies, efficiency_bounds;
  for (const ScalingPoint& point : scaling_of(set)) {
    if (point.is_reference()) continue;
    const std::string label = labels_of(*std::ranges::find(set.arms, point.arm, &RunArm::name)) +
                              ",against=" + label_value(point.against);
    const auto add = [&](double value, const Maybe<Interval>& interval, std::vector<Sample>& values,
                         std::vector<Sample>& bounds) {
      values.push_back({label, value});
      if (!interval) return;
      bounds.push_back({label + ",bound=\"lower\"", interval->lower});
      bounds.push_back({label + ",bound=\"upper\"", interval->upper});
    };
    add(point.speedup, point.speedup_interval, speedups, speedup_bounds);
    add(point.efficiency, point.efficiency_interval, efficiencies, efficiency_bounds);
  }
  print_family(out, "speedup", "Throughput against that of one rank of another arm.", speedups);
  print_family(out, "speedup_interval", "Bounds of its 95 % interval.", speedup_bounds);
  print_family(out, "efficiency", "Speedup / ranks.", efficiencies);
  print_family(out, "efficiency_interval", "Bounds of its 95 % interval.", efficiency_bounds);
}

// The seconds of a time as reports hold it: YYYY-MM-DDThh:mm:ssZ.
double unix_seconds(const std::string& time) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0;
  std::sscanf(time.c_str(), "%d-%d-%dT%d:%d:%dZ", &year, &month, &day, &hour, &minute, &second);
  const std::chrono::sys_days days = std::chrono::year(year) /
                                     std::chrono::month(static_cast<unsigned>(month)) /
                                     std::chrono::day(static_cast<unsigned>(day));
  return static_cast<double>(days.time_since_epoch().count()) * 86400 + hour * 3600 + minute * 60 +
         second;
}

}  // namespace

std::vector<const Run*> complete_runs(const RunArm& arm) {
  std::vector<const Run*> runs;
  for (const SetRun& run : arm.runs) {
    if (is_complete(run.run)) runs.push_back(&run.run);
  }
  return runs;
}

void print_go_benchmark(std::ostream& out, const RunSet& set) {
  constexpr double nanoseconds = 1e9;
  out << "pkg: nearmetal\n";
  for (const Metric* metric : metrics_of_set(set)) {
    if (metric->is_throughput) out << "Unit " << metric->unit << " better=higher\n";
  }
  std::map<std::string, std::string> configuration;
  for (const RunArm& arm : set.arms) {
    for (const SetRun& run : arm.runs) {
      if (!is_complete(run.run)) continue;
      for (const KeyField& field : run.key) {
        const bool shown = field.severity == Severity::work || field.severity == Severity::kind;
        std::string& value = configuration[field.name];
        if (!shown || value == field.value) continue;
        value = field.value;
        out << field.name << ": " << printable(value) << '\n';
      }
      out << "BenchmarkTrain/arm=" << go_name(arm.name) << ' ' << run.run.window->steps << ' '
          << exact(nanoseconds * mean_step_seconds(*run.run.window)) << " ns/op "
          << exact(*run.run.throughput) << ' ' << words_of(run.run.sample).rate << '\n';
    }
  }
}

void print_prometheus(std::ostream& out, const RunSet& set) {
  for (const Metric* metric : metrics_of_set(set)) print_metric(out, set, *metric);
  print_scaling(out, set);
  std::vector<Sample> runs;
  std::vector<Sample> ranks;
  std::vector<Sample> times;
  std::vector<Sample> infos;
  for (const RunArm& arm : set.arms) {
    if (arm.runs.empty()) continue;
    const auto complete = static_cast<double>(complete_runs(arm).size());
    const std::string labels = labels_of(arm);
    runs.push_back({labels + ",complete=\"yes\"", complete});
    runs.push_back({labels + ",complete=\"no\"", static_cast<double>(arm.runs.size()) - complete});
    ranks.push_back({labels, static_cast<double>(arm.runs.front().run.world_size)});
    std::string latest;
    for (const SetRun& run : arm.runs) latest = std::max(latest, run.run.started_at);
    times.push_back({labels, unix_seconds(latest)});
    std::string info = labels;
    for (const char* field : {"kind", "world_size"}) {
      info += std::string(",") + field + "=" + label_value(told_value(arm.runs.front(), field));
    }
    infos.push_back({info, 1});
  }
  print_family(out, "runs", "Runs that were read.", runs);
  print_family(out, "ranks", "Ranks of a run.", ranks);
  print_family(out, "last_run_timestamp_seconds", "Start of the latest run.", times);
  print_family(out, "arm_info", "Workload of the runs of an arm.", infos);
}

}  // namespace nearmetal
