#include "bench/sweep/sweep_report.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "bench/cli/output.h"
#include "bench/cli/process.h"
#include "bench/run/rank_exchange.h"
#include "bench/run/rank_report.h"
#include "bench/sweep/sweep_runs.h"
#include "reports/compare/run_set.h"
#include "reports/compare/scaling.h"
#include "reports/document/metric.h"
#include "reports/formats/report_text.h"
#include "reports/json/json.h"
#include "reports/merge/merge.h"

namespace nearmetal {
namespace {

Run run_without_report(const LaunchPlan& plan, size_t layout, const RunConfig& config) {
  Run run = unmeasured_run(graph_of(config), config, {"the job ended without a report"});
  run.started_at = time_stamp();
  run.device_name = "unknown";
  run.device_reason = "by the layout";
  run.world_size = plan.placements.at(layout).ranks();
  return run;
}

std::optional<ArmShare> share_of(const Placement& placement) {
  if (!placement.share()) return std::nullopt;
  auto jobs = transformed(placement.jobs, [](const PlacedJob& job) { return &job; });
  const auto disturbs = [](const PlacedJob* job) { return job->stress.has_value(); };
  std::ranges::stable_sort(jobs, {}, disturbs);  // those last
  const auto limits = [&](std::optional<int64_t> Share::*limit, int64_t none) {
    const auto of_jobs =
        transformed(jobs, [&](const PlacedJob* job) { return (*job->share).*limit; });
    const bool any =
        std::ranges::any_of(of_jobs, [](const auto& value) { return value.has_value(); });
    if (!any) return std::vector<int64_t>{};
    return transformed(of_jobs, [&](const auto& value) { return value.value_or(none); });
  };
  ArmShare share{.mode = placement.share()->mode,
                 .jobs = std::ssize(placement.training_jobs()),
                 .threads_percent = limits(&Share::threads_percent, 100),
                 .memory_gib = limits(&Share::memory_gib, 0)};
  for (const PlacedJob* job : jobs) {
    const std::optional<MigDevice>& mig = job->ranks.front().mig;
    if (mig) {  // of an unknown kind: itself
      share.profiles.push_back(mig->profile.empty() ? mig->uuid : mig->profile);
    } else if (job->share->profile) {
      share.profiles.push_back(*job->share->profile);
    }
    if (job->stress) share.neighbours.emplace_back(to_string(*job->stress));
  }
  return share;
}

// The workload of each job where they have their own; of jobs that have run, as they did.
std::vector<RunConfig> workloads_of(const LaunchPlan& plan, size_t layout,
                                    const std::vector<Report>& reports) {
  const LayoutWorkloads& planned = plan.workloads.at(layout);
  if (planned.of_jobs.empty()) return {};
  std::vector<RunConfig> workloads;
  for (const size_t job : plan.placements.at(layout).training_jobs()) {
    const size_t next = workloads.size();
    workloads.push_back(next < reports.size() ? reports[next].invocation.config
                                              : planned.of(job).config);
  }
  return workloads;
}

std::pair<Run, std::vector<Environment>> merged(const Placement& placement,
                                                const std::vector<RunConfig>& workloads,
                                                const std::vector<Report>& jobs) {
  const bool serial = placement.share() && placement.share()->mode == SharingMode::serial;
  const bool unlike = does_unlike_work(workloads);
  auto found = merge_jobs(jobs, unlike, serial ? JobOrder::in_turn : JobOrder::at_once);
  if (placement.share() && !has_own_device(placement.share()->mode) && jobs.size() > 1) {
    found.first.peak_flops_per_second = found.first.share_of_peak =
        Unknown{"jobs share what has it"};
  }
  return found;
}

// Warns of hosts that have other builds under the same path.
void warn_of_builds(const std::vector<Report>& jobs, Run& run) {
  for (const Report& job : jobs) {
    if (job.tool == jobs[0].tool) continue;
    run.warnings.push_back(
        {"different_builds",
         "its jobs ran different builds of nearmetal: " + builds_text({jobs[0].tool}, {job.tool}) +
             " | " + builds_text({job.tool}, {jobs[0].tool})});
    return;
  }
}

// Without runs.
Arm arm_of(const LaunchPlan& plan, size_t layout) {
  const Placement& placement = plan.placements.at(layout);
  return {.name = placement.layout,
          .kind = placement.kind,
          .share = share_of(placement),
          .executable = plan.file.layouts.at(layout).build,
          .grid = plan.file.layouts.at(layout).grid,
          .runs = {}};
}

// The VMs in the order in which the jobs' ranks follow each other.
void record_vms(const Placement& placement, Run& run) {
  std::vector<std::optional<int64_t>> vms;  // by rank
  for (const PlacedJob& job : placement.jobs) {
    for (const PlacedRank& rank : job.ranks) {
      if (!job.stress) vms.push_back(rank.vm);
    }
  }
  for (Rank& rank : run.ranks) {  // not all of a job that ended early
    if (rank.rank < std::ssize(vms)) rank.vm = vms[rank.rank];
  }
}

void label_scaling(Report& report) {
  RunSet set;
  add_runs(set, report, "this report");
  for (const ScalingPoint& point : scaling_of(set)) {
    Arm& arm = *find_in(report.arms, point.arm, &Arm::name);
    arm.scaling = point.scaling;
    ArmSpeedup& found = arm.speedup.emplace();
    found.against = point.reference;
    found.ranks = point.ranks;
    found.speedup = point.speedup.value;
    found.efficiency = point.efficiency.value;
    std::tie(found.speedup_lower, found.speedup_upper) = bounds_of(point.speedup.interval);
    std::tie(found.efficiency_lower, found.efficiency_upper) = bounds_of(point.efficiency.interval);
  }
}

}  // namespace

std::string result_text(const Run& run) {
  if (run.status == Status::complete && !run.throughput && !run.jobs.empty()) {
    return "throughput of each job " + joined(transformed(run.jobs, [](const ConcurrentJob& job) {
             return significant(job.throughput) + " " + words_of(job.sample).rate;
           }));
  }
  if (!run.throughput) return "no throughput: " + run.throughput.reason;
  const std::string choice =
      run.communication ? choice_text(run.communication->tried_all_reduces) : "";
  return "throughput " + significant(*run.throughput) + " " + words_of(run.sample).rate +
         (choice.empty() ? "" : " (" + choice + ")");
}

Report report_of_launch(const LaunchPlan& plan, size_t layout, const LaunchOutcome& outcome,
                        int stop) {
  const Placement& placement = plan.placements.at(layout);
  Report report;
  const std::vector<size_t> jobs = placement.training_jobs();
  const std::vector<RunConfig> workloads = workloads_of(plan, layout, outcome.reports);
  report.invocation.config = plan.workloads.at(layout).of(jobs.front()).config;
  Run run = run_without_report(plan, layout, report.invocation.config);
  if (outcome.reports.size() == jobs.size()) {
    report.tool = outcome.reports[0].tool;
    report.invocation.config = outcome.reports[0].invocation.config;
    std::tie(run, report.environments) = merged(placement, workloads, outcome.reports);
    run.neighbours = outcome.neighbours;
    record_vms(placement, run);
    warn_of_builds(outcome.reports, run);
  } else if (!outcome.failure) {  // jobs in turn, of which a stop left some out
    run.status = Status::partial;
    run.failure = "stopped before all jobs had run";
  }
  if (outcome.failure) fail_run(*outcome.failure, run);
  report.kind = placement.kind;
  report.status = run.status;
  report.exit_code = static_cast<int>(exit_code_of(report.status, outcome.code, stop));
  report.invocation.started_at = run.started_at;
  report.invocation.config_sha256 = config_sha256(report.invocation.config);
  report.invocation.origins = origins_of();
  Arm arm = arm_of(plan, layout);
  arm.workloads = workloads;
  // The settings ask for more than there is, or for what this device does not do.
  const bool cannot_run = outcome.code == ExitCode::usage ||
                          outcome.code == ExitCode::not_supported ||
                          outcome.failure_code == FailureCode::out_of_memory;
  if (arm.grid && cannot_run) arm.unsupported = outcome.failure;
  arm.runs = {std::move(run)};
  report.arms = {std::move(arm)};
  return report;
}

Report report_of_sweep(const LaunchPlan& plan, const std::map<size_t, std::string>& unsupported,
                       const std::vector<JournalEntry>& entries, Report report) {
  for (size_t i = 0; i < plan.placements.size(); ++i) {
    Arm arm = arm_of(plan, i);
    if (arm.kind != Kind::measured) report.kind = arm.kind;
    std::vector<const JournalEntry*> of_layout;
    for (const JournalEntry& entry : entries) {
      if (entry.layout == static_cast<int64_t>(i)) of_layout.push_back(&entry);
    }
    std::ranges::sort(of_layout, {}, &JournalEntry::repeat);
    const auto measured = std::ranges::find_if(of_layout, [](const JournalEntry* entry) {
      return settles_work(entry->report.arms.at(0).runs.at(0));
    });
    if (!of_layout.empty()) {
      const JournalEntry* known = measured == of_layout.end() ? of_layout.front() : *measured;
      arm.config = known->report.invocation.config;
      arm.workloads = known->report.arms.at(0).workloads;
    }
    for (const JournalEntry* entry : of_layout) {
      const Arm& then = entry->report.arms.at(0);
      if (then.unsupported) {
        arm.unsupported = then.unsupported;
        continue;
      }
      Run run = then.runs.at(0);
      if (run.status != Status::failed && then.executable != arm.executable) {
        // The build that the layout names was replaced, and both were taken.
        const std::string path = arm.executable ? arm.executable->path : "";
        run.warnings.push_back({"different_builds", "it ran another build of " + path +
                                                        " than the one whose hash its arm has"});
      }
      merge_environments(entry->report.environments, run.ranks, report.environments);
      report.status = std::max(report.status, run.status);
      arm.runs.push_back(std::move(run));
    }
    if (arm.runs.empty() && unsupported.contains(i)) {
      arm = {.name = arm.name, .unsupported = unsupported.at(i), .runs = {}};
    }
    report.arms.push_back(std::move(arm));
  }
  for (const UnsupportedArm& asked : plan.unsupported) {
    report.arms.push_back({.name = asked.name, .unsupported = asked.reason, .runs = {}});
  }
  const bool any =
      std::ranges::any_of(report.arms, [](const Arm& arm) { return !arm.runs.empty(); });
  if (!any && !entries.empty()) report.status = Status::failed;
  label_scaling(report);
  return report;
}

void print_sweep(std::ostream& out, const Report& report, bool colour, const CostRequest& costs) {
  RunSet set;
  add_runs(set, report, "this report");
  add_costs(set, costs);
  print_text(out, sweep_page(set), colour);
}

}  // namespace nearmetal
