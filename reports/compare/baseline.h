// Baselines: named sets of runs, kept as reports in a folder that lives in git.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/value.h"
#include "reports/compare/run_set.h"
#include "reports/statistics/inference.h"

namespace nearmetal {

/// Whether it may name a baseline or a reference, and so a folder or file.
bool is_name_of_runs(const std::string& name);
/// Throws std::invalid_argument: "'a b' is no name of a baseline: ...".
void require_name(const std::string& name, const std::string& what);

/// Copies of reports in a baseline.
struct BaselineCopies {
  std::vector<std::filesystem::path> changed;  // added or removed
  std::vector<std::filesystem::path> left;     // as they were
};

/// Copies each report to FOLDER/NAME/FINGERPRINT/TIME-HASH.json. The fingerprint is that of the
/// comparable key without its layout, so that one name may hold several machines. All are checked
/// before the first is copied: throws std::invalid_argument for a bad name, or a report that is
/// there already, unless these are skipped; InvalidReport for one that cannot be read or has no
/// complete run; OutputError.
BaselineCopies add_to_baseline(const std::filesystem::path& folder, const std::string& name,
                               const std::vector<std::string>& reports, bool skip_existing = false);

/// Removes the copies of these reports, or where there are none all, and folders that become empty.
/// Anything that is no copy stays and is reported as left. Throws InvalidReport where there is no
/// such baseline, std::invalid_argument for a report that is not in it; OutputError.
BaselineCopies remove_from_baseline(const std::filesystem::path& folder, const std::string& name,
                                    const std::vector<std::string>& reports);

/// Names of the baselines in a folder, sorted; none where there is no such folder.
std::vector<std::string> baseline_names(const std::filesystem::path& folder);

/// The folder of the baseline of that name, whatever else has it in the current folder (./NAME), or
/// `place` where it is a file, folder or FILE#ARM. Throws InvalidReport that names the baselines.
std::string place_of_baseline(const std::filesystem::path& folder, const std::string& place);

/// The runs that new runs are compared with.
struct Baseline {
  RunSet recent;
  RunSet anchor{};  // the first runs; it stays where it is while `recent` follows
  std::vector<std::string> new_hosts{};  // of the new runs, that it never had
};

/// The runs of a baseline that count.
struct BaselineWindow {
  std::string since{};       // date of the first that may count; empty: all
  int64_t recent_runs = 20;  // the latest, of each arm
  int64_t anchor_runs = 3;   // the first
};

/// The runs of a history with the comparable key of the first run of `next` (but for the layout),
/// or where there are none those that differ in the fewest fields. Each arm has its latest, so that
/// the base follows slowly and no single run moves it; and where these are no longer all, or of
/// several sessions, the first, against which small losses add up.
Baseline matching_runs(const RunSet& history, const RunSet& next, const BaselineWindow& window);

/// The same for each machine of `next`, whose arms become those of by_machine().
Baseline matching_runs_by_machine(const RunSet& history, RunSet& next,
                                  const BaselineWindow& window);

/// Hosts of `next` that none of the history is: by what a kernel drew when it started, by its
/// installation, or where that is not told of both, by its name.
std::vector<std::string> new_hosts(const RunSet& history, const RunSet& next);

/// What a gate needs to find a drop: so many runs a side, within one session, or of a baseline of
/// several so many new sessions.
struct NeededRuns {
  double drop = 0;
  Maybe<int64_t> runs{};
  Maybe<int64_t> sessions{};
};

/// Runs of a baseline compared with the rest of it, as a gate compares new ones.
struct SelfTest {
  int64_t splits = 0;             // that were compared
  int64_t slower = 0;             // of these, false alarms
  Maybe<double> detectable_drop;  // of that part, which `planned_power` of the splits find
};

/// The runs of one arm under one fingerprint.
struct BaselineSeries {
  std::string baseline;
  std::string fingerprint;  // its first digits, as in the names of folders
  std::string arm;
  std::string work;  // "resnet50 training, fp16, batch 256 on NVIDIA H200"
  SampleUnit sample = SampleUnit::image;
  int64_t runs = 0;      // complete
  int64_t sessions = 0;  // of these
  int64_t left_out = 0;  // not complete
  std::string first;     // start of a run
  std::string last;
  Maybe<double> throughput;  // geometric mean, of several sessions that of their means
  Maybe<double> lower;       // of its 95 % interval
  Maybe<double> upper;
  Maybe<double> spread;       // of the runs, relative
  Maybe<double> run_seconds;  // that a run takes, the mean
  std::vector<NeededRuns> needed_runs;
  std::optional<SelfTest> self_test{};
};

/// The chance with which a drop is found.
inline constexpr double needed_runs_power = 0.95;

/// The series of each fingerprint and arm of a baseline, in order of these. A self-test takes each
/// session in turn as the new runs, or where there is one as many runs as a gate needs at least,
/// drawn 1000 times, and the latest runs of the rest as the base.
std::vector<BaselineSeries> series_of(const RunSet& set, const std::string& baseline,
                                      const DecisionRule& rule, bool with_self_test = false);

}  // namespace nearmetal
