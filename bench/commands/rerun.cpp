#include "bench/commands/rerun.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/text.h"
#include "bench/cli/parse_value.h"
#include "bench/cli/process.h"
#include "bench/commands/compare.h"
#include "bench/commands/program.h"
#include "bench/environment/leave_out_host_info.h"
#include "bench/sweep/repeated_layout.h"
#include "bench/sweep/run_layout.h"
#include "bench/sweep/supported_layouts.h"
#include "bench/sweep/sweep_report.h"
#include "models/load_module.h"
#include "reports/compare/read_runs.h"
#include "reports/json/json.h"
#include "reports/json/report_files.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

// The first name that is free. What takes the source by its beginning, as new*.json does, must not
// take its repeats, too.
std::string name_of_repeat(const std::string& source) {
  std::string stem = fs::path(source).filename().string();
  for (const std::string ending : {".json", ".report"}) {
    if (stem.ends_with(ending)) stem.resize(stem.size() - ending.size());
  }
  for (int number = 1;; ++number) {
    std::string name = "./rerun-" + std::to_string(number) + "-of-" + stem + ".report.json";
    if (!fs::exists(name)) return name;
  }
}

// The processes of a repeat read it again.
void require_file(const std::string& place, const std::string& file) {
  std::error_code ignored;
  if (file != "-" && (!fs::exists(file, ignored) || fs::is_regular_file(file, ignored))) return;
  throw std::invalid_argument(place +
                              " cannot be repeated: a report to be repeated must be a file");
}

void require_repeatable(const Report& report, const std::string& source) {
  const std::string beginning = source + " cannot be repeated: ";
  if (report.arms.size() != 1) {
    throw std::invalid_argument(beginning + "it holds " + counted(std::ssize(report.arms), "arm") +
                                ", and one is repeated at a time; name it as FILE#ARM: " +
                                joined(transformed(report.arms, &Arm::name)));
  }
  if (report.kind == Kind::imported) {
    throw NotComparable(beginning + "it holds imported results, which others published");
  }
  if (report.kind == Kind::predicted) {
    throw NotComparable(beginning + "it holds forecasts, which are no runs");
  }
  if (std::ranges::count(report.arms[0].runs, Status::complete, &Run::status) == 0) {
    throw InvalidReport(beginning + "it holds no complete run to compare new ones with");
  }
}

// The report with the arm that is repeated alone.
Report repeatable_report(const std::string& place) {
  if (fs::is_directory(place)) {
    throw std::invalid_argument("--rerun repeats a report: name one instead of the folder " +
                                place);
  }
  const auto [file, arm] = report_place(place);
  require_file(place, file);
  Report report = read_report(file);
  if (!arm.empty()) keep_only_arm(report, arm, file);
  require_repeatable(report, place);
  return report;
}

// A report comes from anywhere: it has a say in what is started only by the hashes of what ran.
std::optional<std::string> program_for(const Arm& arm, const std::optional<std::string>& named) {
  if (arm.executable) return named.value_or(program_path().string());
  if (!named) return std::nullopt;
  throw std::invalid_argument(
      "no build is recorded that --program could be compared with; without it, this one runs");
}

void require_same_executable(const Repeatable& repeated, bool named) {
  const std::optional<Executable>& build = repeated.plan.file.layouts.at(0).build;
  if (!build) return;
  const Executable& then = *repeated.report.arms[0].executable;
  Executable now = *build;
  const std::string path = std::exchange(now.path, then.path);
  if (now == then) return;
  throw std::invalid_argument(
      repeated.place + " cannot be repeated: " +
      (named ? path + " is another build than the one that ran, '" + then.path + "'"
             : "another build than this one ran, '" + then.path +
                   "'; name a file that holds it: --program FILE"));
}

Report report_of_repeat(const Repeatable& repeated, const LaunchOutcome& outcome,
                        const Context& context) {
  Report report = report_of_launch(repeated.plan, 0, outcome, context.stop);
  if (report.tool.version.empty()) report.tool = build_info();
  report.invocation.argv = context.argv;
  // Who left names out then wants none in what repeats it.
  const RunConfig& then = config_of(repeated.report, repeated.report.arms[0]);
  if (then.no_host_info) leave_out_host_info(report);
  return report;
}

// Never with the code of the run itself: that of a gate says what was compared.
void require_complete(const Report& report, const LaunchOutcome& outcome, const std::string& where,
                      int stop) {
  if (stop != 0 && report.status != Status::complete) {
    throw JobFailure("the repeat was stopped" + where, exit_code_of_signal(stop), false);
  }
  if (outcome.failure) {
    throw JobFailure("the repeat failed: " + *outcome.failure + where, ExitCode::run_failed, false);
  }
}

constexpr const char* rerun_examples = R"(
Example:
  nearmetal rerun old.json --runs 5    the recorded configuration again, here, and the difference
  nearmetal rerun sweep.json#1x1x2     one arm, with its ranks, jobs and shares
  nearmetal rerun old.json --flags     how it was trained: --model=resnet50, --batch=256, ...
  nearmetal rerun old.json --hosts vm0:2,vm1:2
                                       a job of two hosts, on these two
  nearmetal rerun sweep.json#old --program ../old/bin/nearmetal
                                       an arm of another build, by that build

rerun ends with exit 5 at once if the report has no complete run to compare new ones with. Settings
come from the report; no program does. This one runs, and where the layout named a build (executable
of the report), it must have the recorded SHA-256, or --program must name a file that has; else the
exit code is 2. The new reports stay in this folder, even if Ctrl-C stopped the run. A report that
holds plans, and what --program names, must lie under the same path on other hosts.)";

struct RerunForm {
  std::string report;
  std::optional<int64_t> runs;
  bool flags = false;
  RepeatOptions repeat;
  CompareRequest request;
};

void add_rerun_options(Options& options, RerunForm& form) {
  const auto take = [&form](const std::vector<std::string>& places) {
    if (places.size() != 1) {
      throw std::invalid_argument("rerun takes one report, not " + std::to_string(places.size()));
    }
    form.report = checked_path("REPORT", places.front());
  };
  options.values("REPORT", "FILE", "Report whose configuration is repeated", take).required = true;
  options.number("--runs", "N", form.runs, {1, 1000}, "fresh launches [as many as the report has]");
  options.toggle("--flags", form.flags,
                 "print the recorded settings as flags of run; start nothing");
  add_repeat_options(options, form.repeat);
  add_rule_options(options, form.request.options);
  add_form_options(options, form.request);
}

// One flag a line.
ExitCode print_flags(const RerunForm& form, std::ostream& out) {
  if (form.runs || form.repeat.hosts || form.repeat.program) {
    throw std::invalid_argument("--flags starts nothing: leave --runs, --hosts and --program out");
  }
  const Report report = repeatable_report(form.report);
  try {
    const auto words = run_arguments(workload_of_arm(report, report.arms[0]));
    for (const std::string& flag : std::span(words).subspan(1)) out << flag << "\n";
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(form.report + " cannot be repeated: " + error.what());
  }
  return ExitCode::ok;
}

ExitCode run_rerun(const RerunForm& form, const Context& context) {
  if (form.flags) return print_flags(form, context.terminal.out);
  catch_stop_signals();
  const Repeatable repeated = repeatable(form.report, form.repeat);
  RunSet base;
  add_runs(base, repeated.report, repeated.place);
  RunSet next;
  const int64_t runs = form.runs.value_or(std::ssize(repeated.report.arms[0].runs));
  for (int64_t i = 0; i < runs; ++i) {
    add_repeat(next, repeated, false, context);
  }
  const Comparison comparison = compare(base, next, form.request.options);
  return publish({base, next, comparison}, form.request, context.terminal);
}

}  // namespace

void add_repeat_options(Options& options, RepeatOptions& repeat) {
  options.path("--hosts", "LIST|FILE", repeat.hosts,
               "hosts to use: NAME:GPUS,..., or a hostfile of mpirun [this one]");
  const auto absolute = [](const std::string& flag, const std::string& text) {
    return plain_text(flag, fs::absolute(checked_path(flag, text)).lexically_normal().string());
  };
  options.value("--program", "FILE", "build to start, if it is the one that ran [this one]",
                repeat.program, absolute);
}

Repeatable repeatable(const std::string& place, const RepeatOptions& repeat) {
  Repeatable found{place, repeatable_report(place), {}};
  try {
    const Arm& arm = found.report.arms[0];
    PlanRequest request = request_of_arm(found.report, arm, place, repeat.hosts);
    request.file->layouts[0].executable = program_for(arm, repeat.program);
    found.plan = make_launch_plan(request);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(place + " cannot be repeated: " + error.what());
  }
  require_same_executable(found, repeat.program.has_value());
  require_shares(found.plan);
  require_mpirun(found.plan);
  return found;
}

void add_repeat(RunSet& set, const Repeatable& repeated, bool with_steps, const Context& context) {
  const Terminal& terminal = context.terminal;
  const std::string file = name_of_repeat(report_place(repeated.place).first);
  require_writable(file, false);
  terminal.remark("nearmetal: repeating " + repeated.place + " into " + file);
  const LaunchOutcome outcome =
      run_layout(repeated.plan, 0, context.stop,
                 [&](const std::string& progress) { terminal.show_progress(progress); });
  terminal.clear_progress();
  const Report report = report_of_repeat(repeated, outcome, context);
  const bool measured = !outcome.reports.empty();
  if (measured) write_file_atomically(file, to_json(report), false);
  require_complete(report, outcome, measured ? "; what it measured is in " + file : "",
                   context.stop);
  terminal.remark(result_text(report.arms[0].runs[0]));
  add_runs(set, report, file, with_steps);
}

Command rerun_command() {
  return make_command("rerun", "Repeat a report's configuration and compare", rerun_examples,
                      add_rerun_options, run_rerun);
}

}  // namespace nearmetal
