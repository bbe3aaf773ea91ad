// One side of a comparison: runs of one or several reports, by arm.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "reports/compare/comparable_key.h"
#include "reports/document/special_members.h"
#include "reports/document/types.h"

namespace nearmetal {

struct SetRun {
  std::string source;  // the file, for messages
  Tool tool;           // the build that measured it
  Kind kind = Kind::measured;
  SharedKey key;
  // The key of one of several unlike jobs, as if the others did the same, which shows its own work.
  SharedKey own_key{};
  std::string identity{};  // of imported runs: their place in a published file; else empty
  std::string derived{};   // of imported runs: from what, for readers
  std::string session{};   // hosts, their boots, and the day: what they did to all runs alike
  // Digits of a hash of the UUIDs of its GPUs, else of the installations or the names of its hosts:
  // a card that is passed to another VM each day stays one machine.
  std::string machine{};
  std::vector<std::string> argv{};       // of the command that wrote the report
  std::optional<int64_t> asked_steps{};  // of its window; none: it was to last a time
  int64_t seed = 0;
  // Without plans; steps, their losses, profile and digests only where they are kept. The
  // environments of its ranks are indices into those of the set.
  Run run;
};

/// Whether others published it.
inline bool is_imported(const SetRun& run) { return run.kind == Kind::imported; }
/// When it began; of an imported run, which need not tell, its identity.
inline const std::string& beginning_of(const SetRun& run) {
  return is_imported(run) ? run.identity : run.run.started_at;
}

struct RunArm {
  std::string name;
  std::vector<SetRun> runs;
  std::optional<ArmShare> share{};
  std::optional<GridPoint> grid{};
  std::string group{};  // it is compared with arms of the same alone; empty: there are no groups
  std::string whole{};  // the arm whose unlike jobs it is one of; empty: none
};

struct RunSet {
  NM_DECLARE_SPECIAL_MEMBERS(RunSet);
  std::vector<RunArm> arms;
  std::vector<Environment> environments;  // of its runs; the same machine mostly once
  // Arms with jobs that do unlike work. In `arms` is each of their jobs by itself, as "ARM, job 2".
  std::vector<RunArm> wholes{};
  std::vector<UnsupportedArm> unsupported{};
  std::vector<std::string> cost_notes{};  // on Run::costs
  std::vector<std::string> places{};      // of its arms among machines of a reference, in sentences
  std::vector<std::string> metrics{};     // that are asked for; empty: the usual ones
  std::vector<std::string> foreign{};     // files in folders that are no reports, left out
};

/// Sets by the names of their sides; the name of an only one is empty.
using Sides = std::vector<std::pair<std::string, const RunSet*>>;

/// Some of its runs.
using SomeRuns = std::vector<const SetRun*>;

/// Null where there is none.
const RunArm* arm_named(const std::string& name, const RunSet& set);

/// The runs of all arms.
std::vector<std::reference_wrapper<const SetRun>> all_runs(const RunSet& set);

SomeRuns runs_of(const RunArm& arm);
/// Those that are so.
template <class Predicate>
SomeRuns runs_where(const RunArm& arm, const Predicate& holds) {
  SomeRuns runs;
  for (const SetRun& run : arm.runs) {
    if (holds(run)) runs.push_back(&run);
  }
  return runs;
}

SomeRuns complete_runs(const RunArm& arm);

/// A number of its runs, with that of their files where there are several: "5 in 2 files".
std::string counted_files(const std::string& runs, const RunArm& arm);

/// By the time at which they began.
SomeRuns in_order(SomeRuns runs);

/// The hosts of its ranks: "node0+node1".
std::string hosts_of(const RunSet& set, const Run& run);

/// Whether they are one machine, as far as is known: names differ in containers, boots by day.
bool are_one_machine(const Environment& a, const Environment& b);

/// Where runs of an arm are of reports of different machines, the runs of the reports of each,
/// named by its hosts; else nothing. The nodes that a report has are together.
std::vector<std::pair<std::string, RunSet>> by_machines_of_reports(const RunSet& set);

/// The runs of each machine, or machines together, in arms "NAME on HOST", where the installation
/// is known with its first digits: "run on vm (3f2a91c0)". Two machines may have one name.
std::map<std::string, RunSet> by_machine(const RunSet& set);

/// The unit that the runs of an arm were fed; images where it has none.
SampleUnit unit_of(const RunArm& arm);
/// The units of each arm that has runs.
std::vector<SampleUnit> units_of(const RunSet& set);

/// Adds a run to the arm of that name; the environments of its ranks index `environments`.
void add_run(RunSet& set, const std::string& arm, SetRun run,
             const std::vector<Environment>& environments);

/// Adds all that another set holds.
void add_set(RunSet& set, RunSet other);

/// Whether its runs are results that others published.
bool is_imported(const RunArm& arm);
/// Throws NotComparable where some sides are imported, which never stand beside others.
void require_one_nature(const std::vector<RunSet>& sides);
/// Throws NotComparable for imported results, in a sentence that begins so.
void require_none_imported(const RunSet& set, const std::string& beginning);

/// Leaves that arm alone in a report. Throws std::invalid_argument where it is not there.
void keep_only_arm(Report& report, const std::string& arm, const std::string& source);

/// Thrown where runs are wanted and a report has forecasts.
struct HoldsForecasts : NotComparable {
  using NotComparable::NotComparable;
};

/// Adds the runs of a report. Kept are their figures, which is all that comparing takes, and
/// `with_steps` step times, losses, profile and digests, too. Throws HoldsForecasts.
void add_runs(RunSet& set, const Report& report, const std::string& source,
              bool with_steps = false);

/// The builds of the runs, each once.
std::vector<Tool> builds_of(const SomeRuns& runs);

/// "0.1.0 COMMIT Release and ...". With compiler and build ID where another build, of these or of
/// `others`, would read the same.
std::string builds_text(const std::vector<Tool>& builds, const std::vector<Tool>& others = {});

}  // namespace nearmetal
