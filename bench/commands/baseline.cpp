#include "bench/commands/baseline.h"

#include <cmath>
#include <filesystem>
#include <map>

#include "reports/compare/baseline.h"
#include "reports/json/json.h"
#include "reports/statistics/statistics.h"
#include "reports/text/text.h"
#include "reports/text/text_table.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

constexpr size_t shown_digits = 12;     // of a fingerprint
constexpr double planned_for = 0.95;    // chance to find a drop
constexpr int64_t most_planned = 1000;  // runs a side

// The runs of one arm under one fingerprint.
struct Series {
  std::vector<double> values;  // throughput of complete runs
  int64_t left_out = 0;
  std::string first;
  std::string last;
};

using SeriesOf = std::map<std::pair<std::string, std::string>, Series>;  // fingerprint, arm

SeriesOf series_of(const RunSet& set) {
  SeriesOf result;
  for (const RunArm& arm : set.arms) {
    for (const SetRun& run : arm.runs) {
      Series& series = result[{context_sha256(run.key).substr(0, shown_digits), arm.name}];
      const std::string& start = run.run.started_at;
      if (series.first.empty() || start < series.first) series.first = start;
      series.last = std::max(series.last, start);
      const bool counts = run.run.status == Status::complete && run.run.throughput;
      if (counts) series.values.push_back(*run.run.throughput);
      if (!counts) ++series.left_out;
    }
  }
  return result;
}

std::string mean_text(const std::vector<double>& values) {
  if (values.empty()) return "-";
  std::vector<double> logs;
  for (const double value : values) logs.push_back(std::log(value));
  const auto estimate = log_mean(values);
  const double mean_value = std::exp(mean(logs));
  return estimate ? with_interval(mean_value, interval(*estimate, side_confidence))
                  : significant(mean_value);
}

ExitCode add(const CommandLine& line, const Terminal& terminal) {
  for (const fs::path& added :
       add_to_baseline(line.baselines_folder, line.baseline.name, line.baseline.files)) {
    terminal.out << "added " << printable(added.string()) << '\n';
  }
  return ExitCode::ok;
}

ExitCode list(const CommandLine& line, const Terminal& terminal) {
  const std::vector<std::string> names = baseline_names(line.baselines_folder);
  TextTable table;
  table.columns = {{"name"}, {"fingerprint"},          {"arm"}, {"runs", true}, {"first"},
                   {"last"}, {"images/s [95 %]", true}};
  for (const std::string& name : names) {
    const RunSet set = read_runs({(fs::path(line.baselines_folder) / name).string()});
    for (const auto& [key, series] : series_of(set)) {
      table.rows.push_back({name, key.first, key.second, std::to_string(series.values.size()),
                            series.first, series.last, mean_text(series.values)});
    }
  }
  if (names.empty()) {
    terminal.out << "no baselines in " << line.baselines_folder
                 << "; nearmetal baseline add NAME FILE... makes one\n";
  } else {
    print_aligned(terminal.out, table);
  }
  return ExitCode::ok;
}

std::string runs_needed(double deviation, double drop, const DecisionRule& rule) {
  for (int64_t runs = GateOptions{}.minimum_runs; runs <= most_planned; ++runs) {
    const std::vector<RunGroup> groups(2, {deviation, runs});
    if (power_of_regression(groups, std::log1p(-drop), rule) >= planned_for) {
      return std::to_string(runs);
    }
  }
  return "more than " + std::to_string(most_planned);
}

// How many runs a side a gate needs, known before any is taken.
void print_plan(std::ostream& out, const Series& series, const DecisionRule& rule) {
  const auto spread = run_spread(series.values, {});
  if (!spread || spread->deviation == 0) {
    out << "  no spread to plan by: it takes 2 runs that differ\n";
    return;
  }
  out << "  spread of runs: " << plain_percent(std::round(1e6 * spread->deviation) / 1e6) << "\n"
      << "  runs a side to find a drop with " << plain_percent(planned_for) << " chance, at margin "
      << plain_percent(rule.margin) << ", alpha " << plain_percent(rule.alpha) << ":\n";
  for (const double beyond : {0.25, 0.5, 1.0}) {
    const double drop = rule.margin * (1 + beyond);
    out << "    " << plain_percent(drop) << ": " << runs_needed(spread->deviation, drop, rule)
        << '\n';
  }
}

ExitCode show(const CommandLine& line, const Terminal& terminal) {
  const RunSet set = read_runs({place_of_baseline(line.baselines_folder, line.baseline.name)});
  for (const auto& [key, series] : series_of(set)) {
    terminal.out << "fingerprint " << key.first << ", arm " << printable(key.second) << ": "
                 << counted(static_cast<int64_t>(series.values.size()), "run") << " from "
                 << series.first << " to " << series.last;
    if (series.left_out > 0) terminal.out << ", " << series.left_out << " more not complete";
    terminal.out << "\n  images/s [95 %]: " << mean_text(series.values) << '\n';
    print_plan(terminal.out, series, line.judging.options.rule);
  }
  return ExitCode::ok;
}

}  // namespace

ExitCode cmd_baseline(const CommandLine& line, const Terminal& terminal) {
  switch (line.baseline.kind) {
    case BaselineAction::Kind::add:
      return add(line, terminal);
    case BaselineAction::Kind::list:
      return list(line, terminal);
    case BaselineAction::Kind::show:
      return show(line, terminal);
  }
  throw std::logic_error("an action without a function");
}

}  // namespace nearmetal
