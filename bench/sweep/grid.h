// Layouts that run with every combination of some settings.
#pragma once

#include <string>
#include <vector>

#include "comm/layout/layout.h"
#include "reports/document/settings.h"

namespace nearmetal {

/// The axis that --grid names: "batch=32,64". The name is that of the option, or as layout files
/// have it. Throws std::invalid_argument.
GridAxis grid_axis_from(const std::string& text);

/// Puts into the place of each layout one for each combination of the grid, which is named by what
/// differs: the layout where there are several, and the settings of several values. Axes that were
/// asked for on the command line stand over those of the file. Throws std::invalid_argument, with
/// the place, for settings that `run` does not have or that the plan makes itself, values that
/// these do not take or that are there twice, settings that exclude each other, that `asked` or, of
/// a grid in a file, a workload has, too, and for more combinations than a sweep can have.
void expand_grid(LayoutFile& file, const std::vector<GridAxis>& of_command_line,
                 const Workload& asked);

}  // namespace nearmetal
