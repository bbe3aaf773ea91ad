#include <iterator>
#include <stdexcept>

#include "bench/cli/exit_status.h"
#include "bench/cli/parse_value.h"
#include "bench/commands/compare_request.h"
#include "bench/commands/program.h"
#include "bench/commands/repeat_run.h"

namespace nearmetal {
namespace {

constexpr const char* rerun_examples = R"(
Example:
  nearmetal rerun old.json --runs 5    the recorded configuration again, here, and the difference
  nearmetal rerun sweep.json#1x1x2     one arm, with its ranks, jobs and shares
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
  add_repeat_options(options, form.repeat);
  add_rule_options(options, form.request.options);
  add_form_options(options, form.request);
}

ExitCode run_rerun(const RerunForm& form, const Context& context) {
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

Command rerun_command() {
  return make_command("rerun", "Repeat a report's configuration and compare", rerun_examples,
                      add_rerun_options, run_rerun);
}

}  // namespace nearmetal
