// Reports and sets of runs with any throughput, for tests of what compares them.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "reports/compare/run_set.h"
#include "reports/document/metric.h"
#include "tests/support/sample_report.h"

namespace nearmetal {

/// `minute` of a day: orders runs in time.
inline std::string time_at(int minute, int second = 0) {
  char text[40];
  std::snprintf(text, sizeof text, "2026-01-31T%02d:%02d:%02dZ", minute / 60 % 24, minute % 60,
                second % 60);
  return text;
}

inline Run made_up_run(double throughput, const std::string& started_at) {
  Run run = sample_run();
  run.warnings.clear();
  run.started_at = started_at;
  set_throughput(throughput, run);
  const double before = run.window->seconds;
  run.window.value->seconds = static_cast<double>(run.window->samples) / throughput;
  const double longer = run.window->seconds / before;
  for (double& step : run.ranks[0].step_seconds) step *= longer;
  StepTime& time = *run.ranks[0].step_time.value;
  for (double* figure :
       {&time.median_seconds, &time.p95_seconds, &time.p99_seconds, &time.jitter_seconds}) {
    *figure *= longer;
  }
  return run;
}

/// A report with one arm for each list of throughputs; runs start one minute after another.
inline Report made_up_report(const std::vector<std::pair<std::string, std::vector<double>>>& arms,
                             int first_minute = 0) {
  Report report = sample_report();
  report.arms.clear();
  for (const auto& [name, throughputs] : arms) {
    Arm arm;
    arm.name = name;
    int minute = first_minute;
    for (const double throughput : throughputs) {
      arm.runs.push_back(made_up_run(throughput, time_at(minute++)));
    }
    report.arms.push_back(std::move(arm));
  }
  return report;
}

inline RunSet made_up_set(const std::vector<std::pair<std::string, std::vector<double>>>& arms,
                          int first_minute = 0) {
  RunSet set;
  add_runs(set, made_up_report(arms, first_minute), "made up");
  return set;
}

inline RunSet set_of(const Report& report) {
  RunSet set;
  add_runs(set, report, "made up");
  return set;
}

}  // namespace nearmetal
