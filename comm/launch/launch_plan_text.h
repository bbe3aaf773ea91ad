// A plan as a person reads it, as JSON, and as a script of bash, alone or as a batch job of Slurm.
#pragma once

#include <ostream>
#include <string>

#include "comm/launch/launch_plan.h"

namespace nearmetal {

/// The grid and how long all will take, for each layout a table of its ranks and the command of
/// each job, then the order of launches, as far as it fits a screen.
void print_plan(std::ostream& out, const LaunchPlan& plan);

/// Starts one launch after the other; jobs at once run side by side. Reports go to the folder that
/// it runs in and never over a file that is there. Goes on after a launch that failed, ends with
/// the status of the last that did, and stops what runs when interrupted. All texts are quoted.
std::string shell_script(const LaunchPlan& plan);

/// The same for sbatch: nodes, ranks and GPUs for each, and the time as all limits together. Hosts
/// whose addresses are node_variable() are those that Slurm chooses; else it is asked for them.
std::string slurm_script(const LaunchPlan& plan);

std::string plan_json(const LaunchPlan& plan);

/// The JSON Schema (2020-12) of what plan_json() writes, as reports/schema/plan.schema.json.
std::string plan_schema();

}  // namespace nearmetal
