#include "bench/sweep/sweep_report.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "bench/cli/destination.h"
#include "bench/run/rank_report.h"
#include "models/networks/registry.h"
#include "reports/compare/run_set.h"
#include "reports/compare/scaling.h"
#include "reports/document/metric.h"
#include "reports/formats/report_text.h"
#include "reports/json/json.h"
#include "reports/merge/merge.h"
#include "reports/sharing/fractions.h"
#include "reports/statistics/inference.h"
#include "reports/statistics/statistics.h"
#include "reports/text/text.h"
#include "reports/text/text_table.h"

namespace nearmetal {
namespace {

// Of a job that ended without a report.
Run run_without_report(const LaunchPlan& plan, size_t layout) {
  const RunConfig& config = plan.workloads.at(layout).config;
  Run run = unmeasured_run(build_network(config.model, {config.image_size, config.classes}), config,
                           {"the job ended without a report"});
  run.started_at = time_stamp();
  run.device_name = "unknown";
  run.device_reason = "by the layout";
  run.world_size = plan.placements.at(layout).ranks();
  return run;
}

std::string plural_job(const Run& run) {
  return run.jobs.empty() ? "" : " in " + std::to_string(run.jobs.size()) + " jobs";
}

std::string text_of(double value, const Maybe<Interval>& interval, double scale = 1) {
  if (!interval) return significant(scale * value);
  return with_interval(scale * value, {scale * interval->lower, scale * interval->upper});
}

std::string throughput_text(const std::vector<double>& throughputs) {
  const double value = geometric_mean(throughputs);
  const auto estimate = log_mean(throughputs);
  return estimate ? with_interval(value, interval(*estimate, 0.95)) : significant(value);
}

std::vector<std::string> row_of(const RunSet& set, const RunArm& arm, const ScalingPoint* point,
                                const Arm& shown) {
  std::vector<double> throughputs;
  for (const Run& run : shown.runs) {
    if (run.throughput) throughputs.push_back(*run.throughput);
  }
  const size_t runs = shown.runs.size();
  std::string name = arm.name + (shown.kind == Kind::emulated ? " (emulated)" : "");
  if (throughputs.empty()) {
    return {name, "-", "0 of " + std::to_string(runs), "-", "-", "-", "-", "-"};
  }
  const std::string count = throughputs.size() == runs ? std::to_string(runs)
                                                       : std::to_string(throughputs.size()) +
                                                             " of " + std::to_string(runs);
  std::vector<std::string> row = {
      name,  std::to_string(shown.runs[0].world_size) + plural_job(shown.runs[0]),
      count, throughput_text(throughputs),
      "-",   "-",
      "-",   point == nullptr ? without_reference_text(set, arm) : point->against};
  if (point == nullptr) return row;
  row[6] = scaling_text(*point);
  if (point->is_reference()) return row;
  row[4] = text_of(point->speedup, point->speedup_interval);
  row[5] = text_of(point->efficiency, point->efficiency_interval, 100) + " %" +
           (point->efficiency > 1 ? " (above 100 %: look why)" : "");
  return row;
}

std::optional<ArmShare> share_of(const Placement& placement) {
  if (!placement.share()) return std::nullopt;
  std::vector<const PlacedJob*> jobs;  // those that disturb last
  for (const bool stress : {false, true}) {
    for (const PlacedJob& job : placement.jobs) {
      if (job.stress.has_value() == stress) jobs.push_back(&job);
    }
  }
  const auto limits = [&](std::optional<int64_t> Share::*limit, int64_t none) {
    std::vector<int64_t> values;
    for (const PlacedJob* job : jobs) values.push_back(((*job->share).*limit).value_or(none));
    const bool any = std::ranges::any_of(
        jobs, [&](const PlacedJob* job) { return ((*job->share).*limit).has_value(); });
    return any ? values : std::vector<int64_t>{};
  };
  ArmShare share{.mode = placement.share()->mode,
                 .jobs = static_cast<int64_t>(placement.jobs_that_train()),
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

std::pair<Run, std::vector<Environment>> merged(const Placement& placement,
                                                const std::vector<Report>& jobs) {
  const bool serial = placement.share() && placement.share()->mode == SharingMode::serial;
  auto found = serial ? merge_serial_jobs(jobs) : merge_jobs(jobs);
  const bool own_devices = placement.share() && (placement.share()->mode == SharingMode::mig ||
                                                 placement.share()->mode == SharingMode::vgpu);
  if (placement.share() && !own_devices && jobs.size() > 1) {
    found.first.peak_flops_per_second = found.first.share_of_peak =
        Unknown{"jobs share what has it"};
  }
  return found;
}

void label_scaling(Report& report) {
  RunSet set;
  add_runs(set, report, "sweep");
  for (const ScalingPoint& point : scaling_of(set)) {
    const auto arm = std::ranges::find_if(
        report.arms, [&](const Arm& other) { return other.name == point.arm; });
    arm->scaling = point.scaling;
  }
}

// Of the arms that share nothing.
TextTable scaling_table(RunSet& set, const Report& report) {
  const std::vector<ScalingPoint> points = scaling_of(set);
  TextTable table{{{"layout"},
                   {"ranks"},
                   {"runs", true},
                   {std::string(words_of(units_of(set)).rate) + " [95 %]", true},
                   {"speedup", true},
                   {"efficiency", true},
                   {"scaling, batch"},
                   {"against"}},
                  {}};
  for (const Arm& shown : report.arms) {
    if (shown.share || shown.unsupported) continue;
    const auto point = std::ranges::find_if(
        points, [&](const ScalingPoint& other) { return other.arm == shown.name; });
    const RunArm& arm = arm_named(set, shown.name);
    table.rows.push_back(row_of(set, arm, point == points.end() ? nullptr : &*point, shown));
  }
  return table;
}

}  // namespace

Report report_of_launch(const LaunchPlan& plan, size_t layout, const LaunchOutcome& outcome) {
  const Placement& placement = plan.placements.at(layout);
  Report report;
  report.invocation.config = plan.workloads.at(layout).config;
  Run run = run_without_report(plan, layout);
  if (outcome.reports.size() == placement.jobs_that_train()) {
    report.tool = outcome.reports[0].tool;
    report.invocation.config = outcome.reports[0].invocation.config;
    std::tie(run, report.environments) = merged(placement, outcome.reports);
    run.neighbours = outcome.neighbours;
  } else if (outcome.failure.empty()) {  // jobs in turn, of which a stop left some out
    run.status = Status::partial;
    run.failure = "stopped before all jobs had run";
  }
  if (!outcome.failure.empty()) fail_run(outcome.failure, run);
  report.kind = placement.kind;
  report.status = run.status;
  report.exit_code = static_cast<int>(outcome.code);
  report.invocation.started_at = run.started_at;
  report.invocation.config_sha256 = config_sha256(report.invocation.config);
  report.invocation.origins = origins_of();
  Arm arm;
  arm.name = placement.layout;
  arm.kind = placement.kind;
  arm.share = share_of(placement);
  arm.runs = {std::move(run)};
  report.arms = {std::move(arm)};
  return report;
}

Report report_of_sweep(const LaunchPlan& plan, const std::map<size_t, std::string>& unsupported,
                       const std::vector<JournalEntry>& entries, Report report) {
  for (size_t i = 0; i < plan.placements.size(); ++i) {
    Arm arm;
    arm.name = plan.placements[i].layout;
    arm.kind = plan.placements[i].kind;
    arm.share = share_of(plan.placements[i]);
    if (arm.kind != Kind::measured) report.kind = arm.kind;
    std::vector<const JournalEntry*> of_layout;
    for (const JournalEntry& entry : entries) {
      if (entry.layout == static_cast<int64_t>(i)) of_layout.push_back(&entry);
    }
    std::ranges::sort(of_layout,
                      [](const auto* a, const auto* b) { return a->repeat < b->repeat; });
    for (const JournalEntry* entry : of_layout) {
      Run run = entry->report.arms.at(0).runs.at(0);
      merge_environments(entry->report.environments, run.ranks, report.environments);
      report.status = std::max(report.status, run.status);
      arm.config = entry->report.invocation.config;
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
  label_scaling(report);
  return report;
}

void print_sweep(std::ostream& out, const Report& report) {
  RunSet set;
  add_runs(set, report, "sweep");
  if (shares_a_gpu(set)) {
    for (const TitledTable& shown : fraction_tables(set)) {
      out << shown.title << ":\n";
      print_aligned(out, shown.table);
      if (!shown.legend.empty()) print_wrapped(out, shown.legend);
      out << '\n';
    }
  }
  const TextTable scaling = scaling_table(set, report);
  if (!scaling.rows.empty()) print_aligned(out, scaling);
  for (const std::string& line : run_warnings(set)) print_wrapped(out, line);
}

}  // namespace nearmetal
