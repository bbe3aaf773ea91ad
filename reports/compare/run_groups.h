// Runs in groups that are held apart: of two machines, say, whose arms have the same names.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "reports/compare/run_set.h"

namespace nearmetal {

/// Names and places; without groups one pair whose name is empty.
using GroupedPlaces = std::vector<std::pair<std::string, Places>>;

/// NAME=FILE begins a group, or goes on with it; places without a name belong to the one before. A
/// file that has such a name itself begins none. Throws std::invalid_argument where a group has no
/// file, or a file before the first group has none.
GroupedPlaces grouped_places(const Places& places);

struct NamedRuns {
  std::string name;
  RunSet set;
};

struct GroupedRuns {
  RunSet all;                       // arms of a group as "1x1x1, GROUP"
  std::vector<NamedRuns> groups{};  // none where none was named
};

/// The same as read_sides(), each group a side.
GroupedRuns read_groups(const GroupedPlaces& places, bool with_steps = false);

}  // namespace nearmetal
