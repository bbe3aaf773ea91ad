#include "reports/compare/baseline.h"

#include <cmath>
#include <filesystem>
#include <stdexcept>

#include "base/text.h"
#include "base/text_table.h"
#include "bench/commands/compare.h"
#include "bench/commands/program.h"
#include "reports/compare/read_runs.h"
#include "reports/formats/comparison_json.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

constexpr const char* baseline_examples = R"(
Examples:
  nearmetal baseline add main run*.json     copies them to baselines/main/; nothing is overwritten
  nearmetal baseline add main run*.json --skip-existing
  nearmetal baseline list
  nearmetal baseline show main              its runs, their spread, and the drops it can detect
  nearmetal baseline show main --self-test  how often it would raise a false alarm
  nearmetal baseline remove main run3.json  the copy of a report
  nearmetal baseline remove main --all      the whole baseline)";

struct BaselineForm {
  std::string folder = "baselines";  // of all baselines
  std::string name;                  // to show: also a report or a folder
  std::vector<std::string> files;
  bool skip_existing = false;
  bool all = false;  // of its runs
  bool self_test = false;
  bool json = false;
  CompareOptions options;
};

void add_baseline(Options& options, const char* help, BaselineForm& form) {
  add_baselines_option(options, form.folder);
  OptionSpec& name = options.text("NAME", "", form.name, help);
  name.required = name.baselines = true;
}

void add_options_of_add(Options& options, BaselineForm& form) {
  add_baseline(options, "name of the baseline", form);
  options.paths("FILE", "FILE...", form.files, "Reports").required = true;
  options.toggle("--skip-existing", form.skip_existing, "leave out reports that it has already");
}

void add_options_of_remove(Options& options, BaselineForm& form) {
  add_baseline(options, "name of the baseline", form);
  options.paths("FILE", "FILE...", form.files, "Reports whose copies to remove");
  options.toggle("--all", form.all, "remove the whole baseline");
}

constexpr const char* json_help = "print JSON (nearmetal schema baselines)";

void add_options_of_list(Options& options, BaselineForm& form) {
  add_baselines_option(options, form.folder);
  options.toggle("--json", form.json, json_help);
}

void add_options_of_show(Options& options, BaselineForm& form) {
  add_baseline(options, "name of the baseline, or a report or folder", form);
  add_rule_options(options, form.options);
  options.toggle("--self-test", form.self_test,
                 "compare parts of it with the rest: how many false alarms, which drop is found");
  options.toggle("--json", form.json, json_help);
}

std::string mean_text(const BaselineSeries& series) {
  if (!series.throughput) return "-";
  if (!series.lower) return significant(*series.throughput);
  return with_interval(*series.throughput, {*series.lower, *series.upper});
}

ExitCode run_add(const BaselineForm& form, const Context& context) {
  const Terminal& terminal = context.terminal;
  const BaselineCopies copies =
      add_to_baseline(form.folder, form.name, form.files, form.skip_existing);
  for (const fs::path& added : copies.changed) {
    terminal.out << "added " << printable(added.string()) << '\n';
  }
  for (const fs::path& left : copies.left) {
    terminal.out << "there already: " << printable(left.string()) << '\n';
  }
  return ExitCode::ok;
}

ExitCode run_remove(const BaselineForm& form, const Context& context) {
  const Terminal& terminal = context.terminal;
  if (form.all != form.files.empty()) {
    throw std::invalid_argument("baseline remove takes either the reports whose copies are to go " +
                                ("from " + form.name) + ", or --all for the whole baseline");
  }
  const BaselineCopies copies = remove_from_baseline(form.folder, form.name, form.files);
  for (const fs::path& removed : copies.changed) {
    terminal.out << "removed " << printable(removed.string()) << '\n';
  }
  for (const fs::path& left : copies.left) {
    terminal.remark("nearmetal: note: " + left.string() + " is no copy of a report and stays");
  }
  return ExitCode::ok;
}

std::vector<BaselineSeries> read_series(const std::string& place, const std::string& name,
                                        const BaselineForm& form, const Terminal& terminal) {
  const RunSet set = read_runs({place});
  remark_foreign(set, terminal);
  return series_of(set, name, form.options.rule, form.self_test);
}

void print_list(std::ostream& out, const std::vector<BaselineSeries>& all) {
  const char* rate = words_of(transformed(all, &BaselineSeries::sample)).rate;
  TextTable table;
  table.columns = {{"name"},
                   {"fingerprint"},
                   {"arm"},
                   {"runs", true},
                   {"first", false, true},
                   {"last"},
                   {std::string(rate) + " [95 %]", true}};
  for (const BaselineSeries& series : all) {
    table.rows.push_back({series.baseline, series.fingerprint, series.arm,
                          std::to_string(series.runs), series.first, series.last,
                          mean_text(series)});
  }
  print_aligned(out, table);
}

ExitCode run_list(const BaselineForm& form, const Context& context) {
  const Terminal& terminal = context.terminal;
  std::vector<BaselineSeries> all;
  for (const std::string& name : baseline_names(form.folder)) {
    const std::string place = (fs::path(form.folder) / name).string();
    append(all, read_series(place, name, form, terminal));
  }
  if (form.json) {
    terminal.out << to_json(all);
  } else if (all.empty()) {
    print_line(terminal.out, "no baselines in " + form.folder +
                                 "; nearmetal baseline add NAME FILE... makes one");
  } else {
    print_list(terminal.out, all);
  }
  return ExitCode::ok;
}

// How many runs a side a gate needs, known before any is taken.
void print_plan(std::ostream& out, const BaselineSeries& series, const DecisionRule& rule) {
  if (!series.spread) {
    print_line(out, "no spread to plan by: " + series.spread.reason, "  ");
    return;
  }
  const std::string spread = plain_percent(std::round(1e6 * *series.spread) / 1e6);
  print_line(out, "spread of runs: " + spread, "  ");
  const bool by_sessions = series.sessions > 1;
  const int64_t of_each = runs_of_a_session(series.runs, series.sessions);
  print_line(
      out,
      (by_sessions ? "new sessions of " + counted(of_each, "run") : std::string("runs a side")) +
          " to find a drop with " + plain_percent(needed_runs_power) + " chance, at margin " +
          plain_percent(rule.margin) + ", alpha " + plain_percent(rule.alpha) + ":",
      "  ");
  for (const auto& [drop, runs, sessions] : series.needed_runs) {
    const Maybe<int64_t>& count = by_sessions ? sessions : runs;
    const double seconds =
        series.run_seconds.value.value_or(0) *
        static_cast<double>(count.value.value_or(0) * (by_sessions ? of_each : 1));
    print_line(out,
               plain_percent(drop) + ": " + (count ? std::to_string(*count) : count.reason) +
                   (seconds > 0 ? " (about " + duration_text(seconds) + ")" : ""),
               "    ");
  }
}

void print_self_test(std::ostream& out, const BaselineSeries& series) {
  const SelfTest& test = *series.self_test;
  if (test.splits == 0) {
    print_line(out, "no self-test: " + test.detectable_drop.reason, "  ");
    return;
  }
  const std::string found = test.detectable_drop
                                ? plain_percent(planned_power) + " of them would find a drop of " +
                                      plain_percent(std::ceil(1000 * *test.detectable_drop) / 1000)
                                : test.detectable_drop.reason;
  print_line(out,
             "self-test: " + std::to_string(test.slower) + " of " +
                 counted(test.splits, "comparison") + " of " +
                 (series.sessions > 1 ? "a session" : "some runs") +
                 " with the rest called it SLOWER; " + found,
             "  ");
}

ExitCode run_show(const BaselineForm& form, const Context& context) {
  const Terminal& terminal = context.terminal;
  const std::string place = place_of_baseline(form.folder, form.name);
  const std::vector<BaselineSeries> all = read_series(place, form.name, form, terminal);
  if (form.json) {
    terminal.out << to_json(all);
    return ExitCode::ok;
  }
  for (const BaselineSeries& series : all) {
    const std::string others =
        series.left_out > 0 ? ", " + std::to_string(series.left_out) + " more not complete" : "";
    print_line(terminal.out,
               series.work + ", fingerprint " + series.fingerprint + ", arm " + series.arm + ": " +
                   counted(series.runs, "run") +
                   (series.sessions > 1 ? " in " + counted(series.sessions, "session") : "") +
                   " from " + series.first + " to " + series.last + others);
    print_line(terminal.out,
               std::string(words_of(series.sample).rate) + " [95 %]: " + mean_text(series), "  ");
    print_plan(terminal.out, series, form.options.rule);
    if (series.self_test) print_self_test(terminal.out, series);
  }
  return ExitCode::ok;
}

}  // namespace

Command baseline_command() {
  return make_group("baseline", "Keep runs as a named baseline", baseline_examples,
                    "add, remove, list or show",
                    {make_command("add", "Add the runs of reports", baseline_examples,
                                  add_options_of_add, run_add),
                     make_command("remove", "Remove the runs of reports, or all", baseline_examples,
                                  add_options_of_remove, run_remove),
                     make_command("list", "List all baselines and their runs", baseline_examples,
                                  add_options_of_list, run_list),
                     make_command("show", "Show one baseline, and which drops it can detect",
                                  baseline_examples, add_options_of_show, run_show)});
}

}  // namespace nearmetal
