#include "reports/survey/survey.h"

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "bench/cli/output.h"
#include "bench/cli/process.h"
#include "bench/commands/compare.h"
#include "bench/commands/program.h"
#include "bench/commands/sweep.h"
#include "bench/sweep/host_probe.h"
#include "bench/sweep/supported_layouts.h"
#include "bench/sweep/sweep_report.h"
#include "reports/formats/survey_text.h"
#include "reports/json/json.h"
#include "reports/json/report_files.h"

namespace nearmetal {
namespace {

constexpr const char* survey_examples = R"(
Examples:
  nearmetal survey                                 all GPUs of this machine
  nearmetal survey --hosts hosts.txt               all GPUs of these hosts
  nearmetal survey 1x1x4 --batch 64 --repeats 5    four GPUs, with other work
  nearmetal survey --hosts vm[0-7]:8 --baseline last-month.json --html survey.html
  nearmetal gate last-month.json today.json        exit 1 if a suspect is new

Each GPU trains for itself while all others do; then pairs of GPUs sum gradients, in rounds in which
each has one partner (GPUs - 1 rounds inside hosts, all of these at once; between hosts as many as
the logarithm of their number, at least 3); then all of them together. Whoever is slow against the
spread of its own kind is looked at again, and judged by these fresh runs alone. Meanwhile all GPUs
take the same steps, and who computes other bits than most is named. docs/survey.md has the rule,
its error rate, and what it finds.

Exit codes: 0 nothing found, 1 a slow or wrong one is confirmed, or a host does not answer, 3 fewer
  than 4 of a kind: not judged; others as of sweep.)";

struct SurveyForm {
  SweepForm sweep;
  std::optional<std::string> baseline;
  CompareRequest output;  // its forms
};

enum class Task { devices, links, all, bits };

// The jobs of the layout tell.
Task task_of(const LaunchPlan& plan, size_t layout) {
  const RunConfig& config = plan.workloads[layout].config;
  if (config.update == Update::independent) return layout == 0 ? Task::devices : Task::bits;
  const Placement& placement = plan.placements[layout];
  const bool are_pairs = std::ranges::all_of(
      placement.jobs, [](const PlacedJob& job) { return job.ranks.size() == 2; });
  return are_pairs ? Task::links : Task::all;
}

// Which launches a survey needs: a first look at all of it, then fresh runs of what it suspects.
class Course {
 public:
  Course(int64_t repeats, const Report* baseline) : repeats_(repeats), baseline_(baseline) {}

  bool wants(const LaunchPlan& plan, const Launch& launch,
             const std::vector<JournalEntry>& entries) {
    const Task task = task_of(plan, launch.layout);
    if (is_first_look(task, launch.repeat)) return true;
    if (task == Task::all || launch.repeat <= repeats_) return false;
    if (!first_look_is_over(plan, entries)) return false;
    look(plan, entries);
    const std::string& arm = plan.placements[launch.layout].layout;
    if (find_in(found_.faults, arm, &SurveyFault::arm) != nullptr) return true;
    if (task == Task::bits) return false;
    return std::ranges::any_of(found_.suspects, [&](const SurveySuspect& suspect) {
      const bool is_of_links =
          suspect.part == SurveyPart::link || suspect.part == SurveyPart::links;
      return is_of_links == (task == Task::links);
    });
  }

 private:
  // Bits need no repeats: the first run says whether they differ.
  bool is_first_look(Task task, int64_t repeat) const {
    return repeat <= (task == Task::bits ? 1 : repeats_);
  }

  // Entries may be in any order, as failed runs are repeated; layouts that cannot run have none.
  bool first_look_is_over(const LaunchPlan& plan, const std::vector<JournalEntry>& entries) const {
    return std::ranges::all_of(plan.launches, [&](const Launch& launch) {
      if (!is_first_look(task_of(plan, launch.layout), launch.repeat)) return true;
      return std::ranges::any_of(entries, [&](const JournalEntry& entry) {
        return std::cmp_equal(entry.layout, launch.layout) &&
               (entry.repeat == launch.repeat || entry.report.arms.at(0).unsupported);
      });
    });
  }

  // Once for each number of runs.
  void look(const LaunchPlan& plan, const std::vector<JournalEntry>& entries) {
    if (entries.size() == looked_at_) return;
    looked_at_ = entries.size();
    found_ = survey_of(report_of_sweep(plan, {}, entries, {}), repeats_, baseline_);
  }

  int64_t repeats_;
  const Report* baseline_;
  Survey found_;
  size_t looked_at_ = 0;
};

Report read_survey(const std::string& file) {
  Report report = read_report(file);
  if (report.survey) return report;
  throw InvalidReport(file + " is no report of a survey");
}

// A host that is gone is a finding, not the end.
std::vector<std::string> hosts_gone(const PlanRequest& request, const Context& context) {
  const LaunchPlan plan = make_launch_plan(request);
  const std::vector<Host> hosts = hosts_taken(plan);
  if (hosts.size() < 2 || context.stop != 0) return {};
  require_mpirun(plan);
  const std::vector<std::string> silent = silent_hosts(hosts, plan.file.launcher);
  if (!silent.empty()) context.terminal.error("hosts that do not answer: " + joined(silent));
  if (silent.size() == hosts.size())
    throw JobFailure("no host answers", ExitCode::run_failed, false);
  return silent;
}

bool uses_baseline(const Survey& survey) {
  return std::ranges::count(survey.families, true, &SurveyFamily::by_baseline) > 0;
}

ExitCode code_of(const Survey& survey) {
  if (is_anybody_wrong(survey)) return ExitCode::gate_failed;
  return was_judged(survey) ? ExitCode::ok : ExitCode::inconclusive;
}

void add_survey_options(Options& options, SurveyForm& form) {
  add_launch_options(options, form.sweep.request,
                     "starts of each at the first look, and again where one is slow [3]");
  options.path("--baseline", "FILE", form.baseline,
               "report of an earlier survey: its spread finds who is less slow");
  add_resume_options(options, form.sweep.resume);
  add_sweep_output_options(options, form.sweep);
  options.toggle("--markdown", form.output.markdown, "print Markdown");
  options.path("--html", "FILE", form.output.html, "also write a page");
  add_settings(options, form.sweep.request.workload, in_sweep);
  options.check([&form] {
    const Workload& workload = form.sweep.request.workload;
    const RunConfig& config = workload.config;
    if (workload.is_given("update")) {
      throw std::invalid_argument("survey decides who exchanges gradients: leave out --update");
    }
    if (config.pipeline > 1 || config.inference || config.forward_only) {
      throw std::invalid_argument(
          "survey trains the whole network on each GPU: leave out --pipeline, --inference and "
          "--forward-only");
    }
    form.output.force = form.sweep.force;
    form.output.json = form.sweep.json;
  });
}

ExitCode run_survey(const SurveyForm& form, const Context& context) {
  constexpr int64_t standard_repeats = 3;
  catch_stop_signals();
  require_no_launcher("survey");
  std::optional<Report> baseline;
  if (form.baseline) baseline = read_survey(*form.baseline);
  const Report* const before = baseline ? &*baseline : nullptr;
  for (const auto& file : {form.sweep.output, form.output.html}) {
    if (file && form.baseline) require_no_input(*file, std::vector{*form.baseline});
  }
  if (form.output.html) require_writable(*form.output.html, form.output.force);
  SweepForm sweep = form.sweep;
  const int64_t repeats = sweep.request.repeats.value_or(standard_repeats);
  sweep.request.survey = true;
  sweep.request.repeats = 2 * repeats;
  sweep.request.silent_hosts = hosts_gone(sweep.request, context);
  Course course(repeats, before);
  sweep.purpose = Purpose{.name = "survey",
                          .wants =
                              [&](const LaunchPlan& plan, const Launch& launch,
                                  const std::vector<JournalEntry>& entries) {
                                return course.wants(plan, launch, entries);
                              },
                          .conclude =
                              [&](Report& report) {
                                report.survey = survey_of(report, repeats, before);
                                std::vector<std::string>& gone = report.survey->silent_hosts;
                                gone = sweep.request.silent_hosts;
                                if (report.status == Status::failed) {
                                  append(gone, hosts_gone(sweep.request, context));
                                }
                                if (before != nullptr && !uses_baseline(*report.survey)) {
                                  context.terminal.error(
                                      "warning: the spread of --baseline does not count: it is of "
                                      "other work, hardware or --repeats, or of fewer members");
                                }
                                return code_of(*report.survey);
                              },
                          .print =
                              [&](const Report& report, const Terminal& terminal) {
                                publish(survey_page(report), form.output, terminal);
                              }};
  return run_sweep(sweep, context);
}

}  // namespace

Command survey_command() {
  return make_command("survey", "Find slow GPUs, links and hosts of a fleet, and wrong GPUs",
                      survey_examples, add_survey_options, run_survey);
}

}  // namespace nearmetal
