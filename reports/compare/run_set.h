// One side of a comparison: runs of one or several reports, by arm.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "reports/compare/comparable_key.h"
#include "reports/document/types.h"

namespace nearmetal {

struct SetRun {
  std::string source;  // the file, for messages
  std::string tool;    // version and commit that measured it
  Kind kind = Kind::measured;
  std::vector<KeyField> key;
  // Without losses and plans; step times and profile only where they are kept. The environments of
  // its ranks are indices into those of the set.
  Run run;
};

struct RunArm {
  std::string name;
  std::vector<SetRun> runs;
  std::optional<ArmShare> share{};
};

struct RunSet {
  std::vector<RunArm> arms;
  std::vector<Environment> environments;  // of its runs; the same machine mostly once
  std::vector<UnsupportedArm> unsupported{};
};

/// What is kept of each run: its figures, which is all that comparing takes, or what charts show,
/// too, at 8 bytes a step.
enum class Keep { figures, steps_and_profile };

/// What the runs of an arm were fed; images where it has none.
SampleUnit unit_of(const RunArm& arm);
/// Of each arm that has runs.
std::vector<SampleUnit> units_of(const RunSet& set);

RunArm& arm_named(RunSet& set, const std::string& name);

/// Adds a run to the arm of that name, with the environments of its ranks, which are indices into
/// `environments`.
void add_run(RunSet& set, const std::string& arm, SetRun run,
             const std::vector<Environment>& environments);

/// Where a user says that a report is.
struct ReportPlace {
  std::string file;
  std::string arm;  // empty: all
};

/// FILE, or FILE#ARM where no file has that whole name.
ReportPlace report_place(const std::string& place);

/// All *.json files directly in a folder or in folders below it. Throws InvalidReport where there
/// are none.
std::vector<std::filesystem::path> reports_below(const std::filesystem::path& folder);

/// Leaves that arm alone in a report. Throws std::invalid_argument where it is not there.
void keep_only_arm(Report& report, const std::string& arm, const std::string& source);

/// Adds the runs of a report; with `only_arm`, of that one alone. Throws std::invalid_argument for
/// an arm that is not there.
void add_runs(RunSet& set, const Report& report, const std::string& source,
              const std::string& only_arm = "", Keep keep = Keep::figures);

/// One side of a comparison as the user names it: each place is FILE, FILE#ARM, or a folder, of
/// which all *.json files directly or in folders below it.
using Places = std::vector<std::string>;

/// Reads several sides at once, files in parallel. Throws InvalidReport for what cannot be read,
/// std::invalid_argument as above and for a run that is twice on one side.
std::vector<RunSet> read_sides(const std::vector<Places>& sides, Keep keep = Keep::figures);
RunSet read_runs(const Places& places, Keep keep = Keep::figures);

}  // namespace nearmetal
