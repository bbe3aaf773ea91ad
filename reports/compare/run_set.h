// One side of a comparison: runs of one or several reports, by arm.
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reports/document/special_members.h"
#include "reports/document/types.h"

namespace nearmetal {

/// The meaning of a difference, the worst first: numbers of another nature, another computation,
/// other placement, other hardware, other libraries.
enum class Severity { kind, work, layout, hardware, software };
constexpr auto names_of(Severity) {
  return std::array{"kind", "work", "layout", "hardware", "software"};
}

struct KeyField {
  std::string name;
  std::string value;
  Severity severity = Severity::work;
  /// Where a report does not tell it, that is no difference; it is in no hash, since earlier
  /// reports do not.
  bool may_be_unknown = false;

  bool operator==(const KeyField&) const = default;
};

/// The comparable key of one run of a report: kind, settings that decide what is computed (of jobs
/// that differ in them those of each: "resnet50 + resnet18"), what
/// sums the gradients of several ranks and in which type, world size, ranks per operating-system
/// instance, the GPU's chip, or the CPU's model and identity, CPUs, memory and threads, and
/// versions of libraries. Neither host, driver, kernel, hypervisor nor the product name of a GPU
/// are part of it.
std::vector<KeyField> comparable_key(const Report& report, const Arm& arm, const Run& run);

/// The fields that may be allowed to differ; of kinds only measured and emulated. The fields of
/// parts, such as loss_scale.initial, stand for themselves and by what they are parts of; libraries
/// by that alone, as others come with other versions.
std::vector<std::string> fields_that_may_differ();

/// The chip of a GPU without what its product, form factor, memory, MIG or vGPU profile adds:
/// "NVIDIA A100-SXM4-80GB", "GRID A100-40C" and "NVIDIA A100 80GB PCIe MIG 1g.10gb" are all A100.
std::string gpu_chip(const std::string& product);

/// The board of a GPU: "NVIDIA H200" of its MIG device "NVIDIA H200 MIG 1g.18gb", too.
std::string gpu_board(const std::string& product);

/// The sides as they are given: any two sets of runs, or bare metal and a VM or a container.
enum class ComparisonForm { sets, vm, container };
constexpr auto names_of(ComparisonForm) { return std::array{"sets", "vm", "container"}; }

struct KeyDifference {
  std::string name;
  Severity severity = Severity::work;
  std::string base;
  std::string other;
  std::string source{};  // of a comparison: of the run that differs from the first of the base
  bool allowed = false;  // by the options of the comparison

  /// Whether it is what such a comparison looks into: how ranks are split among instances, and the
  /// CPU as a guest sees it. A container sees that of its host.
  bool is_treatment(ComparisonForm form) const;
  /// Whether --allow-differ can cover it: kinds only where both sides ran on a machine, measured
  /// and emulated.
  bool can_be_allowed() const;
  bool operator==(const KeyDifference&) const = default;
};

/// Whether this field is a setting of training whose default follows from the batch.
bool follows_batch(const std::string& field);

/// Fields that differ or are on one side only, the most severe first.
std::vector<KeyDifference> key_differences(const std::vector<KeyField>& base,
                                           const std::vector<KeyField>& other);

/// Whether an entry of --allow-differ covers this field: its name, or the part before a dot.
bool covers(const std::string& allowed, const std::string& field);

/// Marks which differences of one run are allowed: those that the form of the comparison looks
/// into, those that --allow-differ covers, and, where it covers a batch that differs, those that
/// follow from the batch.
void allow(std::vector<KeyDifference>& differences, ComparisonForm form,
           const std::vector<std::string>& allow_differ);

/// SHA-256 of the key without its layout: what one baseline holds may be several layouts.
std::string context_sha256(const std::vector<KeyField>& key);

struct SetRun {
  std::string source;  // the file, for messages
  Tool tool;           // the build that measured it
  Kind kind = Kind::measured;
  std::vector<KeyField> key;
  // The key of one of several unlike jobs, as if the others did the same, which shows its own work.
  std::vector<KeyField> own_key{};
  std::string identity{};  // of imported runs: their place in a published file; else empty
  std::string derived{};   // of imported runs: from what, for readers
  std::string session{};   // hosts, their boots, and the day: what they did to all runs alike
  std::vector<std::string> argv{};       // of the command that wrote the report
  std::optional<int64_t> asked_steps{};  // of its window; none: it was to last a time
  // Without plans; steps, their losses and profile only where they are kept. The environments of
  // its ranks are indices into those of the set.
  Run run;
};

/// Whether others published it.
inline bool is_imported(const SetRun& run) { return run.kind == Kind::imported; }

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
  std::vector<std::string> foreign{};  // files in folders that are no reports, left out
};

/// The unit that the runs of an arm were fed; images where it has none.
SampleUnit unit_of(const RunArm& arm);
/// The units of each arm that has runs.
std::vector<SampleUnit> units_of(const RunSet& set);

RunArm& arm_named(RunSet& set, const std::string& name);

/// Adds a run to the arm of that name, with the environments of its ranks, which are indices into
/// `environments`.
void add_run(RunSet& set, const std::string& arm, SetRun run,
             const std::vector<Environment>& environments);

/// Adds all that another set holds.
void add_set(RunSet& set, RunSet other);

/// File and arm (empty: all) of a place as a user names it: FILE, or FILE#ARM where no file has
/// that whole name.
std::pair<std::string, std::string> report_place(const std::string& place);

/// Whether its runs are results that others published.
bool is_imported(const RunArm& arm);
/// Throws NotComparable where some of the sides are imported and others are not: their arms never
/// stand beside each other.
void require_one_nature(const std::vector<RunSet>& sides);
/// Throws NotComparable for imported results, in a sentence that begins so.
void require_none_imported(const RunSet& set, const std::string& beginning);
/// Adds the results of an arm that others published.
void add_imported(RunSet& set, const Report& report, const Arm& arm, const std::string& source);

/// All *.json files directly in a folder or in folders below it. Throws InvalidReport where there
/// are none.
std::vector<std::filesystem::path> reports_below(const std::filesystem::path& folder);

/// The files of places: FILE, FILE#ARM or a folder. Throws InvalidReport for one without reports.
std::vector<std::string> files_of(const std::vector<std::string>& places);

/// Leaves that arm alone in a report. Throws std::invalid_argument where it is not there.
void keep_only_arm(Report& report, const std::string& arm, const std::string& source);

/// Adds the runs of a report; with `only_arm`, of that one alone. Kept are their figures, which is
/// all that comparing takes, and `with_steps` step times, losses and profile, too. Throws
/// std::invalid_argument for an arm that is not there.
void add_runs(RunSet& set, const Report& report, const std::string& source,
              const std::string& only_arm = "", bool with_steps = false);

/// One side of a comparison as the user names it: each place is FILE, FILE#ARM, or a folder, of
/// which all *.json files directly or in folders below it.
using Places = std::vector<std::string>;

/// Reads several sides at once, files in parallel. Files of a folder that do not name the schema of
/// reports are left out. Throws InvalidReport for what cannot be read, std::invalid_argument as
/// above and for a run that is twice on one side.
std::vector<RunSet> read_sides(const std::vector<Places>& sides, bool with_steps = false);
RunSet read_runs(const Places& places, bool with_steps = false);

}  // namespace nearmetal
