// The runs of a sweep so far and the journal that holds them; whether their jobs did the work that
// they were started for.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/errors.h"
#include "bench/cli/output.h"
#include "comm/launch/launch_plan.h"
#include "comm/layout/placement.h"
#include "reports/document/settings.h"
#include "reports/document/steps.h"
#include "reports/document/types.h"
#include "reports/json/journal_json.h"

namespace nearmetal {

/// Whether a run took steps. Before, not all that its job settles is settled.
inline bool took_steps(const Run& run) {
  return !run.ranks.empty() && steps_taken(run.ranks.front()) > 0;
}

/// Whether its work is that of its layout. A run that failed may have done other work.
inline bool settles_work(const Run& run) { return took_steps(run) && run.status != Status::failed; }

/// "batch 4 instead of 2, seed 7 instead of 1": the settings that config_sha256() tells apart.
/// Empty: none.
std::string other_work(const RunConfig& before, const RunConfig& now);

/// The same of what a job was asked for and did: of what was chosen, as the program of a layout may
/// have other defaults, but for what each rank, or the job itself, settles (--batch auto).
std::string other_work(const Workload& asked, const Report& job);

struct ResumeOptions {
  std::optional<std::string> journal;  // to go on with
  bool keep_failed = false;            // runs of it
  bool any_build = false;
};

class SweepRuns {
 public:
  /// With those of the journal to go on with, but for failed runs unless they are kept; else with a
  /// new journal beside the report, which `replace` puts in the place of one whose runs the report
  /// holds. Throws as Journal does, also for an entry that no sweep of the plan has written.
  SweepRuns(const ResumeOptions& options, const std::filesystem::path& report, bool replace,
            const LaunchPlan& plan, const JournalOrigin& origin, const Terminal& terminal);

  const std::vector<JournalEntry>& entries() const { return entries_; }
  /// Whether it is among them, or its layout cannot run.
  bool done(const Launch& launch) const;
  /// Whether a run of the layout took steps.
  bool has_run(size_t layout) const;
  /// Whether there are some to take again.
  bool any_failed() const;
  /// The code of the first run that failed; that of layouts that cannot run, where all are so.
  ExitCode exit_code() const;

  /// The points in which the jobs of a layout did other work than in its runs so far, as
  /// other_work() says; where all are to do the same, the first tells for all.
  std::string other_work_than_before(size_t layout, const std::vector<Report>& jobs) const;

  /// Has the jobs of a layout take what the first of its runs chose by measuring, where one has:
  /// cuts of a pipeline, batch, what sums gradients, and size of buckets.
  void pin_choices(LaunchPlan& plan, size_t layout) const;

  /// Takes a run, and unless it was cut short puts it into the journal. Where the sweep must end,
  /// says why on the terminal and returns the exit code: the journal cannot be written, which loses
  /// nothing here; or the run is of another build than those before it, of any layout that runs
  /// the same program, and is dropped.
  ExitCode add(JournalEntry entry, bool cut_short);

  const std::filesystem::path& path() const { return journal_.path(); }
  void remove_journal() const {
    std::error_code ignored;
    std::filesystem::remove(path(), ignored);
  }

 private:
  bool is_of_another_build(const JournalEntry& entry) const;

  const ResumeOptions& options_;
  const Terminal& terminal_;
  std::vector<JournalEntry> entries_;
  Journal journal_;
};

}  // namespace nearmetal
