// What schedulers and launchers put before the lines of a log.
#pragma once

#include <string>
#include <vector>

namespace nearmetal {

/// The text without what stands before all its lines alike: times, the rank that mpirun, srun or
/// horovodrun name, the pod that kubectl names, or what else comes before the first of
/// `beginnings`, with which lines of interest begin. Lines of other ranks than the first are empty,
/// so that each line keeps its number; carriage returns and blanks at the ends are gone.
std::string without_prefixes(const std::string& text, const std::vector<std::string>& beginnings);

}  // namespace nearmetal
