#include "reports/formats/scaling_text.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "reports/compare/comparison_row.h"
#include "reports/compare/scaling.h"
#include "reports/compare/work_text.h"
#include "reports/text/text.h"
#include "reports/text/warning_text.h"

namespace nearmetal {
namespace {

std::string name_of(const RunArm& arm) {
  const Kind kind = arm.runs.front().kind;
  return arm.name + (kind == Kind::measured ? "" : std::string(" (") + to_string(kind) + ")");
}

// The ranks of the first complete run, as one that ended without a report shows no jobs.
std::string ranks_text(const RunArm& arm) {
  const auto complete = [](const SetRun& run) { return run.run.status == Status::complete; };
  const Run& run = std::ranges::find_if(arm.runs, complete)->run;
  return std::to_string(run.world_size) +
         (run.jobs.empty() ? "" : " in " + std::to_string(run.jobs.size()) + " jobs");
}

constexpr int behind_rate = 4;         // the column
constexpr size_t scaling_columns = 4;  // the last ones

bool shows_latency(const RunSet& set) {
  return std::ranges::any_of(set.arms, [](const RunArm& arm) {
    return std::ranges::any_of(arm.runs, [](const SetRun& run) { return tells_latency(run.run); });
  });
}

std::string latency_text(const RunArm& arm, const Metric& metric) {
  const Maybe<double> mean = summary_of_arm(arm, metric).geometric_mean;
  return mean ? significant(metric.shown_per_unit * *mean) : "-";
}

void insert_latency(const RunArm& arm, std::vector<std::string>& row) {
  row.insert(row.begin() + behind_rate, {latency_text(arm, latency_metrics().front()),
                                         latency_text(arm, latency_metrics().back())});
}

// By more than the spread of the runs explains, where there are enough to tell.
bool is_beyond_linear(const ScalingPoint& point) {
  const Maybe<Interval>& interval = point.efficiency_interval;
  return (interval ? interval->lower : point.efficiency) > 1;
}

std::vector<std::string> row_of(const RunSet& set, const RunArm& arm, const ScalingPoint* point) {
  const Metric& metric = throughput_metric(unit_of(arm));
  const SideSummary side = summary_of_arm(arm, metric);
  const auto all = std::to_string(arm.runs.size());
  if (side.runs == 0) return {name_of(arm), "-", "0 of " + all, "-", "-", "-", "-", "-"};
  std::vector<std::string> row = {
      name_of(arm),
      ranks_text(arm),
      side.left_out == 0 ? all : std::to_string(side.runs) + " of " + all,
      mean_text(side, metric),
      "-",
      "-",
      "-",
      point == nullptr ? without_reference_text(set, arm) : point->against};
  if (point == nullptr) return row;
  row[6] = scaling_text(*point);
  if (point->is_reference()) return row;
  row[4] = estimate_text(point->speedup, point->speedup_interval);
  row[5] = estimate_text(point->efficiency, point->efficiency_interval, 100) + " %" +
           (is_beyond_linear(*point) ? " (check the reference)" : "");
  return row;
}

// Whether the CPUs of the run's hosts are fewer than the threads that its ranks would take alone.
bool divides_cpus(const RunSet& set, const SetRun& run) {
  if (run.run.device != Device::cpu) return false;
  std::set<int64_t> instances;
  for (const Rank& rank : run.run.ranks) instances.insert(rank.environment);
  int64_t cpus = 0;
  for (const int64_t i : instances) cpus += set.environments.at(i).usable_cpus;
  const int64_t threads = std::strtoll(key_value(run, "threads").c_str(), nullptr, 10);
  return run.run.world_size * threads > cpus;
}

}  // namespace

TextTable scaling_table(const RunSet& set) {
  const std::vector<ScalingPoint> points = scaling_of(set);
  TextTable table{{{"layout"},
                   {"ranks"},
                   {"runs", true},
                   {std::string(words_of(units_of(set)).rate) + " [95 %]", true},
                   {"speedup", true},
                   {"efficiency", true},
                   {"scaling, batch", false, true},
                   {"against", false, true}},
                  {}};
  const bool latency = shows_latency(set);
  if (latency) {
    table.columns.insert(table.columns.begin() + behind_rate,
                         {{"latency p50, ms", true}, {"p99, ms", true}});
  }
  for (const RunArm& arm : set.arms) {
    if (arm.runs.empty() || arm.share || !key_value(arm.runs.front(), "share").empty()) continue;
    const auto point = std::ranges::find(points, arm.name, &ScalingPoint::arm);
    table.rows.push_back(row_of(set, arm, point == points.end() ? nullptr : &*point));
    if (latency) insert_latency(arm, table.rows.back());
  }
  // A single arm has nothing that it could be compared with.
  if (set.arms.size() == 1) {
    table.columns.resize(table.columns.size() - scaling_columns);
    for (auto& row : table.rows) row.resize(table.columns.size());
  }
  return table;
}

std::vector<std::string> arm_remarks(const RunSet& set) {
  std::vector<std::string> texts;
  const auto divides = [&](const RunArm& arm) {
    return !arm.runs.empty() && divides_cpus(set, arm.runs.front());
  };
  if (shows_speedup(set) && std::ranges::any_of(set.arms, divides)) {
    texts.emplace_back(
        "the ranks of a host divide its CPUs, so that more ranks are not more hardware; with "
        "--threads 1 each rank has one");
  }
  for (const UnsupportedArm& arm : set.unsupported) texts.push_back(unsupported_text(arm));
  std::vector<std::string> arms;
  for (const RunArm& arm : set.arms) {
    if (arm.runs.empty()) arms.push_back(arm.name);
  }
  if (arms.empty()) return texts;
  texts.push_back((arms.size() == 1 ? arms.front() : counted(std::ssize(arms), "arm")) +
                  ": no run yet");
  return texts;
}

bool shows_speedup(const RunSet& set) {
  return std::ranges::any_of(scaling_of(set),
                             [](const ScalingPoint& point) { return !point.is_reference(); });
}

}  // namespace nearmetal
