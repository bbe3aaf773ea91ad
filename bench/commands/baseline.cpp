#include "bench/commands/baseline.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <stdexcept>

#include "bench/commands/compare_request.h"
#include "bench/commands/program.h"
#include "reports/compare/baseline.h"
#include "reports/json/json.h"
#include "reports/statistics/statistics.h"
#include "reports/text/text.h"
#include "reports/text/text_table.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

constexpr const char* baseline_examples = R"(
Examples:
  nearmetal baseline add main run*.json    copies them to baselines/main/; nothing is overwritten
  nearmetal baseline list
  nearmetal baseline show main             its runs, their spread, and what it can find)";

constexpr size_t shown_digits = 12;     // of a fingerprint
constexpr double planned_for = 0.95;    // chance to find a drop
constexpr int64_t most_planned = 1000;  // runs a side

struct BaselineForm {
  std::string folder = "baselines";  // of all baselines
  std::string name;                  // to show: also a report or a folder
  std::vector<std::string> files;
  CompareOptions options;
};

void add_name(Options& options, const char* help, BaselineForm& form) {
  options.value("NAME", "", help, [&form](const std::string& text) { form.name = text; }).required =
      true;
}

void add_options_of_add(Options& options, BaselineForm& form) {
  add_baselines_option(options, form.folder);
  add_name(options, "of the baseline", form);
  options.paths("FILE", "FILE...", form.files, "Reports").required = true;
}

void add_options_of_list(Options& options, BaselineForm& form) {
  add_baselines_option(options, form.folder);
}

void add_options_of_show(Options& options, BaselineForm& form) {
  add_baselines_option(options, form.folder);
  add_name(options, "of the baseline, a report or a folder", form);
  add_rule_options(options, form.options);
}

// The runs of one arm under one fingerprint.
struct Series {
  SampleUnit sample = SampleUnit::image;
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
      series.sample = run.run.sample;
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
  const auto estimate = log_mean(values);
  const double mean = geometric_mean(values);
  return estimate ? with_interval(mean, interval(*estimate, side_confidence)) : significant(mean);
}

ExitCode run_add(const BaselineForm& form, const Context& context) {
  const Terminal& terminal = context.terminal;
  for (const fs::path& added : add_to_baseline(form.folder, form.name, form.files)) {
    terminal.out << "added " << printable(added.string()) << '\n';
  }
  return ExitCode::ok;
}

ExitCode run_list(const BaselineForm& form, const Context& context) {
  const Terminal& terminal = context.terminal;
  const std::vector<std::string> names = baseline_names(form.folder);
  TextTable table;
  std::vector<SampleUnit> units;
  for (const std::string& name : names) {
    const RunSet set = read_runs({(fs::path(form.folder) / name).string()});
    remark_foreign(set, terminal);
    for (const auto& [key, series] : series_of(set)) {
      units.push_back(series.sample);
      table.rows.push_back({name, key.first, key.second, std::to_string(series.values.size()),
                            series.first, series.last, mean_text(series.values)});
    }
  }
  table.columns = {{"name"},
                   {"fingerprint"},
                   {"arm"},
                   {"runs", true},
                   {"first"},
                   {"last"},
                   {std::string(words_of(units).rate) + " [95 %]", true}};
  if (names.empty()) {
    terminal.out << "no baselines in " << form.folder
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

ExitCode run_show(const BaselineForm& form, const Context& context) {
  const Terminal& terminal = context.terminal;
  const RunSet set = read_runs({place_of_baseline(form.folder, form.name)});
  remark_foreign(set, terminal);
  for (const auto& [key, series] : series_of(set)) {
    terminal.out << "fingerprint " << key.first << ", arm " << printable(key.second) << ": "
                 << counted(static_cast<int64_t>(series.values.size()), "run") << " from "
                 << series.first << " to " << series.last;
    if (series.left_out > 0) terminal.out << ", " << series.left_out << " more not complete";
    terminal.out << "\n  " << words_of(series.sample).rate
                 << " [95 %]: " << mean_text(series.values) << '\n';
    print_plan(terminal.out, series, form.options.rule);
  }
  return ExitCode::ok;
}

struct NoForm {};

}  // namespace

void add_baselines_option(Options& options, std::string& folder) {
  options.path("--baselines", "FOLDER", folder, "that holds the baselines [baselines]");
}

Command baseline_command() {
  const auto refuse = [](const NoForm&, const Context&) -> ExitCode {
    throw std::invalid_argument("baseline takes add, list or show (nearmetal baseline --help)");
  };
  Command command = make_command<NoForm>(
      "baseline", "Keep runs as a named baseline", baseline_examples, [](Options&, NoForm&) {},
      refuse);
  command.commands = {
      make_command("add", "Add the runs of reports", baseline_examples, add_options_of_add,
                   run_add),
      make_command("list", "All baselines and their runs", baseline_examples, add_options_of_list,
                   run_list),
      make_command("show", "One of them, and its power", baseline_examples, add_options_of_show,
                   run_show),
  };
  return command;
}

}  // namespace nearmetal
