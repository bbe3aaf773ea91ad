// The runs of files and folders, as users name them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "reports/compare/run_set.h"

namespace nearmetal {

/// File and arm (empty: all) of a place: FILE, or FILE#ARM where no file has that whole name.
std::pair<std::string, std::string> report_place(const std::string& place);

/// The files of places: FILE, FILE#ARM or a folder. Throws InvalidReport for one without reports.
std::vector<std::string> files_of(const std::vector<std::string>& places);

/// One side of a comparison as the user names it: each place is FILE, FILE#ARM, or a folder, of
/// which all *.json files directly or in folders below it.
using Places = std::vector<std::string>;

/// Reads several sides at once, files in parallel. Files of a folder that do not name the schema of
/// reports are left out. Throws InvalidReport for what cannot be read, std::invalid_argument as
/// above and for a run that is twice on one side.
std::vector<RunSet> read_sides(const std::vector<Places>& sides, bool with_steps = false);
RunSet read_runs(const Places& places, bool with_steps = false);

/// Names and places; without groups one pair whose name is empty.
using GroupedPlaces = std::vector<std::pair<std::string, Places>>;

/// NAME=FILE begins a group, or goes on with it; places without a name belong to the one before. A
/// file that has such a name itself begins none. Throws std::invalid_argument where a group has no
/// file, or a file before the first group has none.
GroupedPlaces grouped_places(const Places& places);

struct GroupedRuns {
  RunSet all;                                            // arms of a group as "1x1x1, GROUP"
  std::vector<std::pair<std::string, RunSet>> groups{};  // by name; none where none was named
};

/// The same as read_sides(), each group a side. Without groups each machine is one, where an arm
/// has runs of several. Runs of an arm that did different work become arms of their own, "run,
/// batch 4"; with `same_work` NotComparable is thrown for them.
GroupedRuns read_groups(const GroupedPlaces& places, bool with_steps = false,
                        bool same_work = false);

}  // namespace nearmetal
