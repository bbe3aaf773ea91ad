// The workloads of a layout, from its file, its combination of a grid and the command line.
#pragma once

#include <string>
#include <vector>

#include "comm/launch/launch_plan.h"
#include "comm/layout/layout.h"
#include "comm/layout/placement.h"
#include "reports/document/settings.h"

namespace nearmetal {

/// Device, workload of the file, that of the layout, its combination of the grid, that of the job,
/// and what was asked on the command line. Later sources override earlier ones; defaults are
/// filled. `global_batch` is divided by the number of ranks. Throws std::invalid_argument, with the
/// place in the file, for settings that `run` does not have or that the plan makes itself, that
/// contradict each other or the device, or that jobs of a layout cannot differ in; for a batch that
/// cannot be shared, images that the network refuses, and hosts that claim different environments;
/// and where each job would choose how its gradients are summed.
LayoutWorkloads layout_workloads(const LayoutFile& file, const Layout& layout,
                                 const Placement& placement, const Workload& asked);

/// The axis that --grid names: "batch=32,64". The name is that of the option, or as layout files
/// have it. Throws std::invalid_argument.
GridAxis grid_axis_from(const std::string& text);

/// The grid of the file, over which stand the axes of the command line. Throws
/// std::invalid_argument, with the place, for settings that `run` does not have or that the plan
/// makes itself, values that these do not take or that are there twice, settings that exclude each
/// other, and those that `asked` or, of a grid in a file, a workload has, too.
Grid whole_grid(const LayoutFile& file, const std::vector<GridAxis>& of_command_line,
                const Workload& asked);

/// In the place of each layout one for each combination of the grid, which is named by what
/// differs: the layout where there are several, and the settings of several values. Throws
/// std::invalid_argument for more combinations than a sweep can have.
std::vector<Layout> expand_grid(const std::vector<Layout>& layouts, const Grid& grid);

}  // namespace nearmetal
