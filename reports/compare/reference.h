// References: what machines of a kind showed, each measured by some runs, without names of hosts. A
// machine is judged against how others of its kind differ, not against a twin.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "reports/compare/compare.h"
#include "reports/compare/run_set.h"

namespace nearmetal {

/// A named set of runs, an arm for each comparable key. A run has its throughput, its machine, what
/// its monitors saw on the average, and the environment's driver and hypervisor.
struct Reference {
  std::string name;
  RunSet runs;
};

/// The references of a folder, in order of their names; none where there is no such folder. Throws
/// InvalidReport.
std::vector<Reference> read_references(const std::filesystem::path& folder);

/// Throws InvalidReport that names those there are.
const Reference& reference_named(const std::vector<Reference>& references, const std::string& name);

/// "NVIDIA H200, resnet50 training, fp16, batch 256, 12 machines, 2026-11-20 to 2026-11-24; ...".
std::string reference_works(const Reference& reference);

/// Numbers of runs.
struct ReferenceAddition {
  int64_t added = 0;
  int64_t there = 0;     // that it had already
  int64_t left_out = 0;  // not complete, or of unlike jobs
};

/// Adds the complete runs of reports to FOLDER/NAME.json, and makes it. Throws
/// std::invalid_argument for a bad name; NotComparable for results that others published;
/// InvalidReport, also where no run is complete; OutputError.
ReferenceAddition add_to_reference(const std::filesystem::path& folder, const std::string& name,
                                   const std::vector<std::string>& reports);

/// Where an arm has runs of several machines, an arm of each: "run on vm0 (3f2a91c0)".
RunSet by_card(const RunSet& next);

/// The runs that these are compared with: for each arm, by its name, those of the same work, or
/// where there are none those that differ in the fewest fields; a machine is not its own
/// reference. Without a name that reference which has all of the work, but for fields that may
/// differ. Throws NotComparable where none has, and InvalidReport where there is none of that name,
/// naming those there are.
Reference matching_reference(const std::vector<Reference>& references,
                             const std::optional<std::string>& name, const RunSet& next,
                             const std::vector<std::string>& allow_differ);

/// Days from its latest run, after which a reference is called old.
inline constexpr int64_t oldest_reference_days = 180;

/// What a reader should know of a reference beside these runs, by the latest run of each: its age,
/// another version of nearmetal, another hypervisor.
std::vector<Warning> doubts_of_reference(const RunSet& reference, const RunSet& next);

}  // namespace nearmetal
