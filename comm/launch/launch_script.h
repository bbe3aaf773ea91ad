// A plan as a script of bash, alone or as a batch job of Slurm.
#pragma once

#include <string>

#include "comm/launch/launch_plan.h"

namespace nearmetal {

/// Starts one launch after the other; jobs at once run side by side. Reports go to the folder that
/// it runs in and never over a file that is there. Goes on after a launch that failed, ends with
/// the status of the last that did, and stops what runs when interrupted. All texts are quoted.
std::string shell_script(const LaunchPlan& plan);

/// The same for sbatch: nodes, ranks and GPUs for each, and the time as all limits together. Hosts
/// whose addresses are node_variable() are those that Slurm chooses; else it is asked for them.
std::string slurm_script(const LaunchPlan& plan);

}  // namespace nearmetal
