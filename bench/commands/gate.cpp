#include "bench/commands/gate.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <stdexcept>

#include "bench/cli/parse_value.h"
#include "bench/cli/process.h"
#include "bench/commands/compare.h"
#include "bench/commands/program.h"
#include "reports/compare/baseline.h"

namespace nearmetal {
namespace {

constexpr const char* gate_examples = R"(
Examples:
  nearmetal baseline add main old*.json    keep runs, in git with the code
  nearmetal gate main new*.json            exit 1 if new runs are shown to be slower by over 2 %
  nearmetal gate old/ new/ --fail-on not-equivalent --margin 1%

Exit codes: 0 pass, 1 fail, 3 inconclusive or too few runs, 4 not comparable or a row is missing,
  5 a side has no complete run.)";

void take_places(CompareRequest& request, const std::vector<std::string>& places) {
  if (places.size() < 2) throw std::invalid_argument("gate takes BASE and one or more of NEW");
  request.base = {checked_path("BASE", places.front())};
  for (size_t i = 1; i < places.size(); ++i) {
    request.next.push_back(checked_path("NEW", places[i]));
  }
}

std::string checked_date(const std::string& flag, const std::string& text) {
  constexpr size_t digits = 10;
  tm date{};
  const char* end = strptime(text.c_str(), "%Y-%m-%d", &date);
  if (end == text.c_str() + digits && text.size() == digits) return text;
  throw std::invalid_argument(flag + " takes a date such as 2026-01-31, not '" + text + "'");
}

Baseline read_base(const GateForm& form, const RunSet& next, const Terminal& terminal) {
  namespace fs = std::filesystem;
  const std::string place = place_of_baseline(form.baselines_folder, form.request.base.front());
  require_no_input(form.request, {place});
  std::error_code ignored;
  const RunSet history = read_runs({place}, form.request.html.has_value());
  remark_foreign(history, terminal);
  require_none_imported(history, "gate judges runs of nearmetal alone");
  if (!fs::is_directory(place, ignored)) return {history};
  BaselineWindow window = form.window;
  window.anchor_runs = form.gate.minimum_runs;
  Baseline base = matching_runs(history, next, window);
  if (!history.arms.empty() && base.recent.arms.empty()) {
    throw std::invalid_argument("--since " + window.since + ": no run of " + place +
                                " that new ones could be compared with began on that day or later");
  }
  return base;
}

ExitCode run_gate(const GateForm& form, const Context& context) {
  const CompareRequest& request = form.request;
  if (std::ranges::count(request.options.allow_differ, "kind") > 0) {
    throw std::invalid_argument(
        "--allow-differ kind is for compare: a gate compares like with like");
  }
  std::optional<Repeatable> repeated;
  if (form.reruns > 0) {
    catch_stop_signals();  // before other threads start
    repeated = repeatable(request.next.front(), form.repeat);
  }
  require_no_input(request, request.next);
  RunSet next = read_runs(request.next, request.html.has_value());
  require_none_imported(next, "gate judges runs of nearmetal alone");
  const Baseline base = read_base(form, next, context.terminal);
  remark_foreign(next, context.terminal);
  CompareOptions options = request.options;
  options.base_can_grow = false;
  const auto take_run = [&](RunSet& set) {
    add_repeat(set, *repeated, request.html.has_value(), context);
  };
  const auto [comparison, result] =
      judge_sequentially(base, next, options, form.gate, form.reruns, take_run);
  return publish({base.recent, next, comparison, result, form.reruns > 0}, request,
                 context.terminal);
}

}  // namespace

void add_gate_options(Options& options, GateForm& form) {
  CompareRequest& request = form.request;
  OptionSpec& places =
      options.values("BASE NEW", "...", "BASE: a baseline, report or folder; NEW: reports to judge",
                     [&](const std::vector<std::string>& texts) { take_places(request, texts); });
  places.required = places.baselines = true;
  add_rule_options(options, request.options);
  options.value("--fail-on", "regression|not-equivalent|any",
                "shown worse; not shown to be as good; any change [regression]", form.gate.fail_on,
                parse_choice<FailOn>);
  options.number("--min-runs", "N", form.gate.minimum_runs, {2, 1000},
                 "minimum number of runs per side");
  options.toggle("--require-clean", form.gate.require_clean,
                 "exit 4 unless each run's monitor shows it undisturbed");
  options.share("--max-detectable", form.gate.largest_detectable_drop, {0, 1, true},
                "exit 3 if only larger drops would be found, with 80 % chance");
  options.number("--window", "N", form.window.recent_runs, {2, 100000},
                 "number of the baseline's latest runs that count");
  options.value("--since", "DATE", "first day of the baseline that counts: 2026-01-31 [all]",
                form.window.since, checked_date);
  options.number("--rerun", "MAX", form.reruns, {0, 1000},
                 "while inconclusive, repeat NEW at most this many times");
  add_repeat_options(options, form.repeat);
  add_baselines_option(options, form.baselines_folder);
  add_form_options(options, request);
  add_page_options(options, request);
  options.path("--junit", "FILE", request.junit, "also write the rows as JUnit XML");
}

Command gate_command() {
  return make_command("gate", "Compare new runs with a baseline; the exit code is the verdict",
                      gate_examples, add_gate_options, run_gate);
}

}  // namespace nearmetal
