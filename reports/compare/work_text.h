// The work of runs, in words, for readers who have not seen the command lines.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "reports/compare/run_set.h"

namespace nearmetal {

/// Fields of the comparable key that tell what a figure is of: columns and labels of tables.
inline constexpr std::array work_fields = {"model", "device",       "precision",
                                           "batch", "forward_only", "inference"};

/// A field of the key of a run; empty if there is no such field.
std::string key_value(const SetRun& run, const std::string& field);

/// The same for tables: "no" where the key leaves out a setting that earlier versions did not have.
std::string work_value(const SetRun& run, const std::string& field);

/// "resnet50 training".
std::string task_of_run(const SetRun& run);

/// "resnet50 training, fp16, batch 256".
std::string work_of(const SetRun& run);

/// "resnet50 training"; what differs between runs stands side by side: "resnet18 training |
/// resnet34 training".
std::string task_of(const RunSet& set);

/// "resnet50 training, fp16, batch 256, 224x224, NVIDIA H200, host NAME, 2026-11-20 to 2026-11-22",
/// without the host where the reports leave out its name; empty without runs.
std::string work_line(const RunSet& set);

/// The same line, where sides differ one for each: "VM: resnet50 training, ...".
std::vector<std::string> work_lines(const Sides& sides);

/// The work that the complete runs of an arm did not have in common; empty: nothing.
std::string different_work(const RunArm& arm);

/// Throws NotComparable where complete runs of an arm did different work.
void require_same_work(const RunSet& set);

}  // namespace nearmetal
