// The work that is started again where runs are repeated: the layout that an arm of a report ran,
// or one process.
#pragma once

#include <optional>
#include <string>

#include "bench/sweep/make_launch_plan.h"
#include "reports/document/types.h"

namespace nearmetal {

/// One process on this machine, as in this shell.
LayoutFile layout_of_process(Device device, const std::string& name);

/// The settings with which an arm ran, what its runs chose by measuring included; not which GPU
/// each of several ranks took. Throws std::invalid_argument where its jobs have workloads of their
/// own.
Workload workload_of_arm(const Report& report, const Arm& arm);

/// The work of an arm as it ran: under mpirun or alone, its jobs and their ranks, hosts, emulated
/// VMs and shares, on the first GPUs that are visible here, by this program, with the settings of
/// its configuration and exactly the plans of `place` (FILE or FILE#ARM) where it holds any.
/// `hosts` are those to run on, in the order of the report's; without any it is this machine.
/// Throws std::invalid_argument for what the report does not tell, and for other numbers of hosts
/// or GPUs.
PlanRequest request_of_arm(const Report& report, const Arm& arm, const std::string& place,
                           const std::optional<std::string>& hosts);

}  // namespace nearmetal
