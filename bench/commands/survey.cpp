#include "reports/survey/survey.h"

#include <algorithm>
#include <stdexcept>

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

// By what it starts.
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
    if (task == Task::all) return launch.repeat <= repeats_;
    if (task == Task::bits ? launch.repeat == 1 : launch.repeat <= repeats_) return true;
    // Repeats follow one another: before that, the first look is not over.
    const int64_t last = task == Task::bits ? launch.repeat : repeats_;
    if (entries.empty() || entries.back().repeat < last) return false;
    look(plan, entries);
    if (task == Task::bits) {
      const std::string& arm = plan.placements[launch.layout].layout;
      return launch.repeat <= repeats_ &&
             std::ranges::find(found_.faults, arm, &SurveyFault::arm) != found_.faults.end();
    }
    return std::ranges::any_of(found_.suspects, [&](const SurveySuspect& suspect) {
      const bool is_of_links =
          suspect.part == SurveyPart::link || suspect.part == SurveyPart::links;
      return is_of_links == (task == Task::links);
    });
  }

 private:
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
std::vector<std::string> hosts_gone(const PlanRequest& request, const Terminal& terminal) {
  const LaunchPlan plan = make_launch_plan(request);
  const std::vector<Host> hosts = hosts_taken(plan);
  if (hosts.size() < 2) return {};
  require_mpirun(plan);
  const std::vector<std::string> silent = silent_hosts(hosts, plan.file.launcher);
  if (!silent.empty()) terminal.error("hosts that do not answer: " + joined(silent));
  return silent;
}

ExitCode code_of(const Survey& survey) {
  if (!survey.silent_hosts.empty()) return ExitCode::gate_failed;
  const bool any_slow = std::ranges::count(survey.suspects, true, &SurveySuspect::confirmed) > 0;
  if (any_slow || !survey.faults.empty()) return ExitCode::gate_failed;
  const bool any_judged = std::ranges::any_of(survey.families, [](const SurveyFamily& family) {
    return family.found_from.value.has_value();
  });
  return any_judged ? ExitCode::ok : ExitCode::inconclusive;
}

void add_survey_options(Options& options, SurveyForm& form) {
  add_launch_options(options, form.sweep.request);
  options.path("--baseline", "FILE", form.baseline,
               "report of an earlier survey, whose spread counts: less is found");
  add_resume_options(options, form.sweep.resume);
  add_sweep_output_options(options, form.sweep);
  options.toggle("--markdown", form.output.markdown, "print Markdown");
  options.path("--html", "FILE", form.output.html, "also write a page");
  add_settings(options, form.sweep.request.workload, in_sweep);
  options.check([&form] {
    const RunConfig& config = form.sweep.request.workload.config;
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
  SweepForm sweep = form.sweep;
  const int64_t repeats = sweep.request.repeats.value_or(standard_repeats);
  sweep.request.survey = true;
  sweep.request.repeats = 2 * repeats;
  sweep.request.silent_hosts = hosts_gone(sweep.request, context.terminal);
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
                                  append(gone, hosts_gone(sweep.request, context.terminal));
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
