#include "bench/commands/compare.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "bench/commands/html_output.h"
#include "bench/commands/repeat_run.h"
#include "reports/compare/baseline.h"
#include "reports/files/atomic_file.h"
#include "reports/formats/comparison_json.h"
#include "reports/formats/comparison_text.h"
#include "reports/formats/junit.h"
#include "reports/json/json.h"
#include "reports/text/text.h"
#include "reports/text/text_table.h"

namespace nearmetal {
namespace {

ExitCode exit_code_of(const Comparison& comparison) {
  const auto refused = [](const FoundDifference& found) { return !found.allowed; };
  if (std::any_of(comparison.key_differences.begin(), comparison.key_differences.end(), refused)) {
    return ExitCode::not_comparable;
  }
  const auto& rows = comparison.rows;
  const auto is_missing = [](const ComparisonRow& row) {
    return row.verdict == Verdict::not_comparable;
  };
  const auto has_figures = [](const ComparisonRow& row) {
    return row.difference.value.has_value();
  };
  if (std::any_of(rows.begin(), rows.end(), has_figures)) return ExitCode::ok;
  return std::any_of(rows.begin(), rows.end(), is_missing) ? ExitCode::not_comparable
                                                           : ExitCode::invalid_report;
}

struct Judged {
  const RunSet& base;
  const RunSet& next;
  const Comparison& comparison;
  std::optional<GateResult> gate;

  ExitCode exit_code() const { return gate ? gate->exit_code : exit_code_of(comparison); }
  std::string verdict() const {
    return "verdict: " + printable(gate ? gate->verdict : verdict_counts(comparison)) + " (exit " +
           std::to_string(static_cast<int>(exit_code())) + ")";
  }
};

std::string sequential_text(const GateResult& gate, const DecisionRule& rule) {
  return "sequential: " + counted(gate.reruns, "run") +
         " taken because earlier answers were inconclusive; of alpha " + plain_percent(gate.alpha) +
         ", shared by " + counted(gate.looks, "look") + ", this one took " +
         plain_percent(rule.alpha);
}

// What a gate says of itself, one line each.
std::vector<std::string> statements_of(const Judged& judged, const Judging& judging) {
  std::vector<std::string> lines;
  if (!judged.gate) return lines;
  const std::string power = power_text(judged.comparison);
  if (!power.empty()) lines.push_back("power: " + power);
  if (judging.reruns > 0) {
    lines.push_back(sequential_text(*judged.gate, judged.comparison.options.rule));
  }
  return lines;
}

void write_files(const Judged& judged, const Judging& judging) {
  if (judging.html) {
    Page page = comparison_page(judged.base, judged.next, judged.comparison, judged.verdict());
    const std::vector<std::string> statements = statements_of(judged, judging);
    page.remarks.insert(page.remarks.begin(), statements.begin(), statements.end());
    write_file_atomically(*judging.html, html_of(page, judging.charts), judging.force);
  }
  if (judging.junit && judged.gate) {
    std::ostringstream text;
    print_junit(text, judged.comparison, *judged.gate);
    write_file_atomically(*judging.junit, text.str(), judging.force);
  }
}

// The verdict is the last line; in JSON it is a field.
ExitCode publish(const Judged& judged, const Judging& judging, const Terminal& terminal) {
  const Comparison& comparison = judged.comparison;
  write_files(judged, judging);
  if (judging.json) {
    terminal.out << to_json(comparison, judged.gate, judged.exit_code());
    return judged.exit_code();
  }
  if (judging.markdown) {
    print_comparison_markdown(terminal.out, comparison);
    terminal.out << '\n';
  } else {
    print_comparison(terminal.out, comparison, terminal.colour);
  }
  for (const std::string& line : statements_of(judged, judging)) terminal.out << line << '\n';
  terminal.out << judged.verdict() << '\n';
  return judged.exit_code();
}

Keep kept(const Judging& judging) { return judging.html ? Keep::steps_and_profile : Keep::figures; }

RunSet read_base(const Judging& judging, const std::string& baselines_folder, const RunSet& next) {
  namespace fs = std::filesystem;
  const std::string place = place_of_baseline(baselines_folder, judging.base.front());
  std::error_code ignored;
  const RunSet history = read_runs({place}, kept(judging));
  return fs::is_directory(place, ignored) ? matching_runs(history, next, judging.window) : history;
}

// The report whose configuration is repeated: the first of the new side, left with the arm that is.
struct Repeatable {
  std::string place;  // FILE or FILE#ARM
  Report report;
};

Repeatable repeatable(const std::string& place) {
  if (std::filesystem::is_directory(place)) {
    throw std::invalid_argument("--rerun repeats a report: name one instead of the folder " +
                                place);
  }
  const ReportPlace at = report_place(place);
  Repeatable found{place, read_report(at.file)};
  if (!at.arm.empty()) keep_only_arm(found.report, at.arm, at.file);
  require_repeatable(found.report, place);
  return found;
}

// The new run takes the name of the arm that it repeats: they are one row.
void add_repeated(RunSet& set, const Repeatable& repeated, const std::string& file, Keep keep) {
  Report report = read_report(file);
  report.arms.at(0).name = repeated.report.arms[0].name;
  add_runs(set, report, file, "", keep);
}

}  // namespace

ExitCode cmd_compare(const Judging& judging, const Terminal& terminal) {
  const std::vector<RunSet> sides = read_sides({judging.base, judging.next}, kept(judging));
  const Comparison comparison = compare(sides[0], sides[1], judging.options);
  return publish({sides[0], sides[1], comparison, std::nullopt}, judging, terminal);
}

ExitCode cmd_gate(const Judging& judging, const std::string& baselines_folder,
                  const Terminal& terminal) {
  RunSet next = read_runs(judging.next, kept(judging));
  const RunSet base = read_base(judging, baselines_folder, next);
  CompareOptions options = judging.options;
  options.base_can_grow = false;
  std::optional<Repeatable> repeated;
  if (judging.reruns > 0) repeated = repeatable(judging.next.front());
  ExitCode run_code = ExitCode::ok;
  const auto take_run = [&](RunSet& set) {
    const RepeatedRun run = repeat_run(repeated->report, repeated->place, terminal);
    run_code = run.exit_code;
    if (run_code == ExitCode::ok) add_repeated(set, *repeated, run.report, kept(judging));
    return run_code == ExitCode::ok;
  };
  const GatedComparison gated =
      judge_sequentially(base, next, options, judging.gate, judging.reruns, take_run);
  if (run_code != ExitCode::ok) return run_code;
  return publish({base, next, gated.comparison, gated.result}, judging, terminal);
}

ExitCode cmd_rerun(const Judging& judging, const Terminal& terminal) {
  const Repeatable repeated = repeatable(judging.base.front());
  RunSet base;
  add_runs(base, repeated.report, repeated.place);
  RunSet next;
  const auto recorded = std::ssize(repeated.report.arms[0].runs);
  const int64_t runs = judging.reruns > 0 ? judging.reruns : recorded;
  for (int64_t i = 0; i < runs; ++i) {
    const RepeatedRun run = repeat_run(repeated.report, repeated.place, terminal);
    if (run.exit_code != ExitCode::ok) return run.exit_code;
    add_repeated(next, repeated, run.report, Keep::figures);
  }
  const Comparison comparison = compare(base, next, judging.options);
  return publish({base, next, comparison, std::nullopt}, judging, terminal);
}

}  // namespace nearmetal
