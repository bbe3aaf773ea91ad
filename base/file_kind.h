// Files that others wrote: what one is by its content, so that a command that is given another can
// say so, and what schedulers and launchers put before the lines of a log.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nearmetal {

/// What the text holds and who takes it, unless it has the words that a file of the kind that is
/// asked for has: "it holds a log of MLPerf Training, which nearmetal import mlperf reads". Empty,
/// too, where no kind is known.
std::string other_kind(std::string_view words_of_asked, std::string_view text);

/// The text without what stands before all its lines alike: times, the rank that mpirun, srun or
/// horovodrun name, the pod that kubectl names, or what else comes before the first of
/// `beginnings`, with which lines of interest begin. Lines of other ranks than the first are empty,
/// so that each line keeps its number; carriage returns and blanks at the ends are gone.
std::string without_prefixes(const std::string& text, const std::vector<std::string>& beginnings);

}  // namespace nearmetal
