#include "bench/cmd_compare.h"

#include <algorithm>
#include <filesystem>

#include "bench/repeat_run.h"
#include "reports/baseline.h"
#include "reports/comparison_json.h"
#include "reports/comparison_text.h"
#include "reports/json.h"
#include "reports/text.h"
#include "reports/text_table.h"

namespace nearmetal {
namespace {

ExitCode exit_code_of(const Comparison& comparison) {
  const auto refused = [](const FoundDifference& found) { return !found.allowed; };
  const auto invalid = [](const ComparisonRow& row) { return row.verdict == Verdict::invalid; };
  if (std::any_of(comparison.key_differences.begin(), comparison.key_differences.end(), refused)) {
    return ExitCode::not_comparable;
  }
  return std::all_of(comparison.rows.begin(), comparison.rows.end(), invalid)
             ? ExitCode::invalid_report
             : ExitCode::ok;
}

// The verdict is the last line; in JSON it is a field.
ExitCode publish(const Comparison& comparison, const std::optional<GateResult>& gate,
                 const Judging& judging, const Terminal& terminal) {
  const ExitCode code = gate ? gate->exit_code : exit_code_of(comparison);
  if (judging.json) {
    terminal.out << to_json(comparison, gate, code);
    return code;
  }
  if (judging.markdown) {
    print_comparison_markdown(terminal.out, comparison);
    terminal.out << '\n';
  } else {
    print_comparison(terminal.out, comparison, terminal.colour);
  }
  if (gate) {
    const std::string power = power_text(comparison);
    if (!power.empty()) terminal.out << "power: " << power << '\n';
    if (gate->reruns > 0) {
      terminal.out << "sequential: " << counted(gate->reruns, "run")
                   << " taken because earlier answers were inconclusive\n";
    }
  }
  const std::string verdict = gate ? gate->verdict : verdict_counts(comparison);
  terminal.out << "verdict: " << printable(verdict) << " (exit " << static_cast<int>(code) << ")\n";
  return code;
}

RunSet read_base(const Judging& judging, const std::string& baselines_folder, const RunSet& next) {
  namespace fs = std::filesystem;
  std::string place = judging.base.front();
  const fs::path named = fs::path(baselines_folder) / place;
  std::error_code ignored;
  if (!fs::exists(place, ignored) && fs::is_directory(named, ignored)) place = named.string();
  const RunSet history = read_runs({place});
  return fs::is_directory(place, ignored) ? matching_runs(history, next, judging.window) : history;
}

// The first file of the new side, whose configuration is repeated.
std::string file_of(const std::string& place) {
  if (std::filesystem::is_directory(place)) {
    throw std::invalid_argument("--rerun repeats a report: name one instead of the folder " +
                                place);
  }
  return std::filesystem::exists(place) ? place : place.substr(0, place.rfind('#'));
}

}  // namespace

ExitCode cmd_compare(const Judging& judging, const Terminal& terminal) {
  const std::vector<RunSet> sides = read_sides({judging.base, judging.next});
  return publish(compare(sides[0], sides[1], judging.options), std::nullopt, judging, terminal);
}

ExitCode cmd_gate(const Judging& judging, const std::string& baselines_folder,
                  const Terminal& terminal) {
  RunSet next = read_runs(judging.next);
  const RunSet base = read_base(judging, baselines_folder, next);
  CompareOptions options = judging.options;
  options.base_can_grow = false;
  int64_t reruns = 0;
  while (true) {
    const Comparison comparison = compare(base, next, options);
    GateResult result = judge(comparison, judging.gate);
    result.reruns = reruns;
    if (!result.inconclusive || reruns == judging.reruns) {
      return publish(comparison, result, judging, terminal);
    }
    const std::string file = file_of(judging.next.front());
    const RepeatedRun repeated = repeat_run(read_report(file), file, terminal);
    if (repeated.exit_code != ExitCode::ok) return repeated.exit_code;
    add_runs(next, read_report(repeated.report), repeated.report);
    ++reruns;
  }
}

ExitCode cmd_rerun(const Judging& judging, const Terminal& terminal) {
  const std::string& file = judging.base.front();
  const Report report = read_report(file);
  RunSet base;
  add_runs(base, report, file);
  RunSet next;
  const auto recorded = static_cast<int64_t>(report.arms.empty() ? 0 : report.arms[0].runs.size());
  const int64_t runs = judging.reruns > 0 ? judging.reruns : std::max<int64_t>(1, recorded);
  for (int64_t i = 0; i < runs; ++i) {
    const RepeatedRun repeated = repeat_run(report, file, terminal);
    if (repeated.exit_code != ExitCode::ok) return repeated.exit_code;
    add_runs(next, read_report(repeated.report), repeated.report);
  }
  return publish(compare(base, next, judging.options), std::nullopt, judging, terminal);
}

}  // namespace nearmetal
