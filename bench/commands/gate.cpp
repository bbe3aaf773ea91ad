#include "bench/commands/gate.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <tuple>

#include "bench/cli/parse_value.h"
#include "bench/cli/process.h"
#include "bench/commands/program.h"
#include "reports/formats/survey_text.h"
#include "reports/json/json.h"
#include "reports/json/report_files.h"
#include "reports/survey/survey.h"

namespace nearmetal {
namespace {

constexpr const char* gate_examples = R"(
Examples:
  nearmetal baseline add main old*.json    keep runs, in git with the code
  nearmetal gate main new*.json            exit 1 if new runs are shown to be slower by over 2 %
  nearmetal gate old/ new/ --fail-on not-equivalent --margin 1%
  nearmetal gate run*.json --reference fleet   exit 1 if slower than 95 % of machines of the kind

Exit codes: 0 pass, 1 fail, 3 inconclusive or too few runs, 4 not comparable or a row is missing,
  5 a side has no complete run.)";

void take_base_and_new(CompareRequest& request, const Places& places) {
  for (const std::string& place : places) request.next.push_back(checked_path("BASE NEW", place));
}

// The first is the base, unless a reference is.
void choose_base(CompareRequest& request, const GateOptions& gate) {
  if (request.reference.asked) {
    if (gate.fail_on == FailOn::regression) return;
    throw std::invalid_argument(
        "leave out --fail-on with --reference: it fails where a machine is slower than the others, "
        "and machines are never shown to be equivalent");
  }
  if (request.next.size() < 2) {
    throw std::invalid_argument("gate takes BASE and one or more of NEW");
  }
  request.base = {request.next.front()};
  request.next.erase(request.next.begin());
}

std::string checked_date(const std::string& flag, const std::string& text) {
  constexpr size_t digits = 10;
  tm date{};
  const char* end = strptime(text.c_str(), "%Y-%m-%d", &date);
  if (end == text.c_str() + digits && text.size() == digits) return text;
  throw std::invalid_argument(flag + " takes a date such as 2026-01-31, not '" + text + "'");
}

// By machine, the arms of `next` are renamed.
Baseline read_base(const GateForm& form, RunSet& next, const Terminal& terminal) {
  namespace fs = std::filesystem;
  const std::string place = place_of_baseline(form.baselines_folder, form.request.base.front());
  require_no_input(form.request, {place});
  std::error_code ignored;
  const RunSet history = read_runs({place}, form.request.html.has_value());
  remark_foreign(history, terminal);
  require_none_imported(history, "gate judges runs of nearmetal alone");
  std::vector<std::string> hosts = new_hosts(history, next);
  const bool is_baseline = fs::is_directory(place, ignored);
  if (!is_baseline && !form.per_machine) return {history, {}, hosts};
  BaselineWindow window = form.window;
  window.anchor_runs = is_baseline ? form.gate.minimum_runs : 0;
  if (!is_baseline) window.recent_runs = std::numeric_limits<int64_t>::max();
  Baseline base = form.per_machine ? matching_runs_by_machine(history, next, window)
                                   : matching_runs(history, next, window);
  base.new_hosts = std::move(hosts);
  if (!window.since.empty() && !history.arms.empty() && base.recent.arms.empty()) {
    throw std::invalid_argument("--since " + window.since + ": no run of " + place +
                                " that new ones could be compared with began on that day or later");
  }
  return base;
}

// Two reports of surveys, where both sides are one.
std::optional<std::pair<Report, Report>> surveys_of(const GateForm& form) {
  const auto& [base, next] = std::tie(form.request.base, form.request.next);
  if (base.size() != 1 || next.size() != 1) return {};
  std::error_code ignored;
  std::vector<Report> found;
  const std::vector<std::string> files = {place_of_baseline(form.baselines_folder, base.front()),
                                          next.front()};
  for (const std::string& file : files) {
    if (!std::filesystem::is_regular_file(file, ignored)) return {};
    found.push_back(read_report(file));
    if (!found.back().survey) return {};
    if (found.back().status == Status::complete) continue;
    throw InvalidReport(file + ": the survey is not complete");
  }
  if (form.request.junit) {
    throw std::invalid_argument("--junit: a gate of surveys has no rows; use --json or --html");
  }
  require_no_input(form.request, files);
  return std::pair(std::move(found[0]), std::move(found[1]));
}

// Fails on whom the earlier survey did not have.
ExitCode gate_survey(const Report& base, Report next, const CompareRequest& request,
                     const Terminal& terminal) {
  const Survey fresh = new_since(base, next);
  for (SurveySuspect& suspect : next.survey->suspects) {
    suspect.known =
        suspect.confirmed && !find_in(fresh.suspects, suspect.units, &SurveySuspect::units);
  }
  Page page = survey_page(next);
  ExitCode code = ExitCode::ok;
  if (is_anybody_wrong(fresh)) {
    code = ExitCode::gate_failed;
    page.headlines.emplace_back("FAIL: the earlier survey did not have these");
  } else if (!was_judged(*next.survey)) {
    code = ExitCode::inconclusive;
    page.headlines.emplace_back("INCONCLUSIVE: not all of the survey was judged");
  } else {
    page.headlines.emplace_back("PASS: nobody whom the earlier survey did not have");
  }
  next.exit_code = static_cast<int64_t>(code);
  publish(page, request, terminal);
  if (request.json) terminal.out << to_json(next);
  return code;
}

ExitCode run_gate(const GateForm& form, const Context& context) {
  const CompareRequest& request = form.request;
  if (const auto surveys = surveys_of(form)) {
    return gate_survey(surveys->first, surveys->second, request, context.terminal);
  }
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
  remark_foreign(next, context.terminal);
  CompareOptions options = request.options;
  options.base_can_grow = false;
  Baseline base;
  if (request.reference.asked) {
    const Reference reference = chosen_reference(request.reference, next, options);
    options = with_reference(options, reference);
    base.recent = reference.runs;
  } else {
    base = read_base(form, next, context.terminal);
  }
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
  OptionSpec& places = options.values(
      "BASE NEW", "...", "BASE: a baseline, report or folder; NEW: reports to judge",
      [&](const std::vector<std::string>& texts) { take_base_and_new(request, texts); });
  places.required = places.baselines = true;
  add_reference_options(options, request.reference);
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
  options.toggle("--per-machine", form.per_machine,
                 "gate the runs of each host against those of the same host");
  options.number("--rerun", "MAX", form.reruns, {0, 1000},
                 "while inconclusive, repeat NEW at most this many times");
  add_repeat_options(options, form.repeat);
  options.check([&form] {
    choose_base(form.request, form.gate);
    if (!form.per_machine || form.reruns == 0) return;
    throw std::invalid_argument("--per-machine and --rerun: reruns are on this machine alone");
  });
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
