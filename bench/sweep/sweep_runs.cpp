#include "bench/sweep/sweep_runs.h"

#include <algorithm>
#include <functional>
#include <variant>

#include "base/text.h"
#include "reports/compare/run_set.h"
#include "reports/document/warning.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

std::string differences(const RunConfig& before, const RunConfig& now,
                        const std::function<bool(const Setting& setting)>& counts) {
  std::vector<std::string> found;
  for_each_setting([&](const Setting& setting, auto member) {
    if (setting.decides == Decides::display || before.*member == now.*member) return;
    if (!counts(setting)) return;
    found.push_back(std::string(setting.name) + " " + shown_value(setting, now.*member) +
                    " instead of " + shown_value(setting, before.*member));
  });
  return joined(found);
}

// Whether the value that is asked for says what a job must have done.
bool is_resolved(const RunConfig& asked, const Setting& setting) {
  const auto is = [&](SettingMember member) { return setting.member == member; };
  if (is(&RunConfig::device) || is(&RunConfig::gpu) || is(&RunConfig::ranks)) return false;
  if (is(&RunConfig::batch) && asked.batch == largest_that_fits) return false;
  if (is(&RunConfig::all_reduce) && asked.all_reduce == AllReduceKind::automatic) return false;
  if (is(&RunConfig::threads) && asked.threads == 0) return false;
  return std::visit([&](auto member) { return std::optional(asked.*member).has_value(); },
                    setting.member);
}

std::string journal_name(const fs::path& report) { return report.string() + "l"; }

// Whether nothing is lost with the journal beside the report.
bool holds_journal(const fs::path& report) {
  std::error_code ignored;
  return fs::exists(report, ignored) && holds_runs_of(report, journal_name(report));
}

bool is_unsupported(const JournalEntry& entry) {
  return entry.report.arms.at(0).unsupported.has_value();
}

bool has_failed(const JournalEntry& entry) {
  if (is_unsupported(entry)) return false;
  return entry.report.status == Status::failed || entry.report.exit_code != 0;
}

// Whether the launch needs no start after that run, unless it failed.
bool is_of(const JournalEntry& entry, const Launch& launch) {
  return entry.layout == static_cast<int64_t>(launch.layout) &&
         (entry.repeat == launch.repeat || is_unsupported(entry));
}

// That a sweep of the plan can have written the entry behind those before it, where only what
// failed is taken again.
void require_entry_of(const LaunchPlan& plan, const JournalEntry& entry,
                      const std::vector<JournalEntry>& before) {
  const auto require = [](bool holds, const std::string& but) {
    if (!holds) throw InvalidReport(but);
  };
  const std::vector<Arm>& arms = entry.report.arms;
  require(arms.size() == 1 && arms[0].runs.size() == 1, "its report is not of one run");
  const Launch launch{static_cast<size_t>(entry.layout), entry.repeat};
  const std::string name = "run " + std::to_string(entry.repeat) + " of '" +
                           printable(arms[0].name) + "' (layout " + std::to_string(entry.layout) +
                           ")";
  require(std::ranges::find(plan.launches, launch) != plan.launches.end(),
          name + " is not asked for: give as many --repeats as before");
  require(arms[0].name == plan.placements[launch.layout].layout,
          "/report/arms/0/name is '" + printable(arms[0].name) + "', but that of the layout is '" +
              printable(plan.placements[launch.layout].layout) + "'");
  const Status status = arms[0].unsupported ? Status::failed : arms[0].runs[0].status;
  require(entry.report.status == status, std::string("/report/status is ") +
                                             to_string(entry.report.status) + ", but the run is " +
                                             to_string(status));
  require(std::ranges::none_of(before,
                               [&](const JournalEntry& earlier) {
                                 return is_of(earlier, launch) && !has_failed(earlier);
                               }),
          name + " is there twice");
}

Journal opened(const ResumeOptions& options, const fs::path& report, bool replace,
               const LaunchPlan& plan, const JournalOrigin& origin, const Terminal& terminal,
               std::vector<JournalEntry>& entries) {
  if (!options.journal) {
    return Journal::create(journal_name(report), origin, replace && holds_journal(report));
  }
  std::vector<Warning> warnings;
  Journal journal = Journal::resume(
      *options.journal, origin, options.any_build,
      [&](const auto& entry, const auto& before) { require_entry_of(plan, entry, before); },
      entries, warnings);
  for (const Warning& warning : warnings) terminal.remark("warning: " + attributed_text(warning));
  return journal;
}

const std::optional<Tool>& tool_of(const JournalEntry& entry) {
  return entry.report.arms.at(0).runs.at(0).tool;
}

// Empty: that of all layouts that name none.
std::string program_of(const JournalEntry& entry) {
  const std::optional<Executable>& named = entry.report.arms.at(0).executable;
  return named ? named->path : "";
}

// Whether it is a run of the layout that took steps.
bool is_run_of(size_t layout, const JournalEntry& entry) {
  return entry.layout == static_cast<int64_t>(layout) &&
         took_steps(entry.report.arms.at(0).runs.at(0));
}

bool settles_work_of(size_t layout, const JournalEntry& entry) {
  return is_run_of(layout, entry) && settles_work(entry.report.arms.at(0).runs.at(0));
}

// Of each job; of jobs that do the same once.
std::vector<RunConfig> work_of(const JournalEntry& entry) {
  const std::vector<RunConfig>& workloads = entry.report.arms.at(0).workloads;
  return workloads.empty() ? std::vector{entry.report.invocation.config} : workloads;
}

// Fills what the workload leaves open with what an earlier run measured.
void take_choices(const RunConfig& then, Workload& workload) {
  RunConfig& config = workload.config;
  if (config.batch == largest_that_fits) config.batch = then.batch;
  if (config.all_reduce == AllReduceKind::automatic) config.all_reduce = then.all_reduce;
  if (!config.bucket_mib) config.bucket_mib = then.bucket_mib;
  if (config.pipeline == 1 || config.cuts || !then.cuts) return;
  config.cuts = then.cuts;
  workload.given.emplace_back("cuts");
}

}  // namespace

std::string other_work(const RunConfig& before, const RunConfig& now) {
  return differences(before, now, [](const Setting&) { return true; });
}

std::string other_work(const Workload& asked, const Report& job) {
  if (!took_steps(job.arms.at(0).runs.at(0))) return "";
  return differences(asked.config, job.invocation.config, [&](const Setting& setting) {
    return is_resolved(asked.config, setting) && asked.is_given(setting.name);
  });
}

SweepRuns::SweepRuns(const ResumeOptions& options, const fs::path& report, bool replace,
                     const LaunchPlan& plan, const JournalOrigin& origin, const Terminal& terminal)
    : options_(options),
      terminal_(terminal),
      journal_(opened(options, report, replace, plan, origin, terminal, entries_)) {
  if (!options.journal) return;
  const int64_t all = std::ssize(entries_);
  const auto failed =
      options.keep_failed ? 0 : static_cast<int64_t>(std::erase_if(entries_, has_failed));
  terminal.remark(counted(all, "run") + (all == 1 ? " is" : " are") + " in the journal" +
                  (failed > 0 ? ", of which " + std::to_string(failed) +
                                    " failed and will be repeated (--keep-failed does not)"
                              : ""));
}

bool SweepRuns::done(const Launch& launch) const {
  return std::ranges::any_of(entries_,
                             [&](const JournalEntry& entry) { return is_of(entry, launch); });
}

bool SweepRuns::has_run(size_t layout) const {
  return std::ranges::any_of(entries_, [&](const auto& entry) { return is_run_of(layout, entry); });
}

bool SweepRuns::any_failed() const {
  return !options_.keep_failed && std::ranges::any_of(entries_, has_failed);
}

ExitCode SweepRuns::exit_code() const {
  const bool all_unsupported = std::ranges::all_of(entries_, is_unsupported);
  for (const JournalEntry& entry : entries_) {
    if (is_unsupported(entry) && !all_unsupported) continue;
    if (entry.report.exit_code != 0) return static_cast<ExitCode>(entry.report.exit_code);
  }
  return ExitCode::ok;
}

ExitCode SweepRuns::add(JournalEntry entry, bool cut_short) {
  if (is_of_another_build(entry)) return ExitCode::usage;
  entries_.push_back(std::move(entry));
  if (cut_short) return ExitCode::ok;
  try {
    journal_.append(entries_.back());
  } catch (const OutputError& error) {
    terminal_.error(error.what());
    return ExitCode::output_failed;
  }
  return ExitCode::ok;
}

// The program may have been built anew meanwhile. Layouts without a program of their own share that
// of the sweep.
bool SweepRuns::is_of_another_build(const JournalEntry& entry) const {
  const std::optional<Tool>& tool = tool_of(entry);
  const auto other = std::ranges::find_if(entries_, [&](const JournalEntry& earlier) {
    return program_of(earlier) == program_of(entry) && tool_of(earlier) && tool_of(earlier) != tool;
  });
  if (options_.any_build || !tool || other == entries_.end()) return false;
  terminal_.error("run " + std::to_string(entry.repeat) + " of " + entry.report.arms.at(0).name +
                  " was of another build of nearmetal (" +
                  builds_text({*tool}, {*tool_of(*other)}) + ") than those before (" +
                  builds_text({*tool_of(*other)}, {*tool}) +
                  ") and is dropped: --allow-other-build takes both");
  return true;
}

// Settings that the job itself settled count, too.
std::string SweepRuns::other_work_than_before(size_t layout,
                                              const std::vector<Report>& jobs) const {
  const auto before = std::ranges::find_if(
      entries_, [&](const JournalEntry& entry) { return settles_work_of(layout, entry); });
  if (before == entries_.end()) return "";
  const std::vector<RunConfig> then = work_of(*before);
  for (size_t i = 0; i < std::min(then.size(), jobs.size()); ++i) {
    if (!took_steps(jobs[i].arms.at(0).runs.at(0))) continue;
    const std::string other = other_work(then[i], jobs[i].invocation.config);
    if (!other.empty()) return (i > 0 ? "job " + std::to_string(i + 1) + ": " : "") + other;
  }
  return "";
}

void SweepRuns::pin_choices(LaunchPlan& plan, size_t layout) const {
  LayoutWorkloads& workloads = plan.workloads.at(layout);
  const std::vector<size_t> jobs = plan.placements.at(layout).training_jobs();
  for (const JournalEntry& entry : entries_) {
    if (!settles_work_of(layout, entry)) continue;
    const std::vector<RunConfig> then = work_of(entry);
    take_choices(then.front(), workloads);
    for (auto& [job, workload] : workloads.of_jobs) {
      const auto place = static_cast<size_t>(std::ranges::find(jobs, job) - jobs.begin());
      if (place < then.size()) take_choices(then[place], workload);
    }
  }
}

}  // namespace nearmetal
