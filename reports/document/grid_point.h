// Where an arm stands in the grid of a sweep.
#pragma once

#include <map>
#include <string>

namespace nearmetal {

struct GridPoint {
  std::string layout;                           // runs with each combination of the grid
  std::map<std::string, std::string> settings;  // of this combination, as layout files name them

  bool operator==(const GridPoint&) const = default;
};

}  // namespace nearmetal
