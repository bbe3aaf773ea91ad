#include "reports/compare/run_groups.h"

#include <algorithm>
#include <filesystem>
#include <stdexcept>

namespace nearmetal {
namespace {

// Name and place; without a name the place alone.
std::pair<std::string, std::string> named_place(const std::string& place) {
  std::error_code ignored;
  const size_t sign = place.find('=');
  const bool names = sign != place.npos && sign > 0 && place.find('/') > sign;
  if (!names || std::filesystem::exists(report_place(place).first, ignored)) return {"", place};
  return {place.substr(0, sign), place.substr(sign + 1)};
}

RunSet with_group(const NamedRuns& group) {
  RunSet set = group.set;
  for (std::vector<RunArm>* arms : {&set.arms, &set.wholes}) {
    for (RunArm& arm : *arms) {
      arm.name += ", " + group.name;
      if (!arm.whole.empty()) arm.whole += ", " + group.name;
      arm.group = group.name;
    }
  }
  for (UnsupportedArm& arm : set.unsupported) arm.name += ", " + group.name;
  return set;
}

}  // namespace

GroupedPlaces grouped_places(const Places& places) {
  GroupedPlaces groups;
  std::string group;  // the group of places without a name
  for (const std::string& given : places) {
    const auto [name, place] = named_place(given);
    if (place.empty()) throw std::invalid_argument("'" + given + "' names a group without a file");
    if (!name.empty()) group = name;
    auto known = std::ranges::find(groups, group, &GroupedPlaces::value_type::first);
    if (known == groups.end()) known = groups.insert(known, {group, {}});
    known->second.push_back(place);
  }
  const auto unnamed = std::ranges::find(groups, "", &GroupedPlaces::value_type::first);
  if (groups.size() > 1 && unnamed != groups.end()) {
    throw std::invalid_argument("'" + unnamed->second.front() +
                                "' comes before the first group: NAME=" + unnamed->second.front());
  }
  return groups;
}

GroupedRuns read_groups(const GroupedPlaces& places, bool with_steps) {
  std::vector<Places> sides;
  for (const auto& [name, of_group] : places) sides.push_back(of_group);
  std::vector<RunSet> sets = read_sides(sides, with_steps);
  GroupedRuns runs;
  if (places.size() == 1 && places.front().first.empty()) {
    runs.all = std::move(sets.front());
    return runs;
  }
  for (size_t i = 0; i < sets.size(); ++i) {
    runs.groups.push_back({places[i].first, std::move(sets[i])});
    add_set(runs.all, with_group(runs.groups.back()));
  }
  return runs;
}

}  // namespace nearmetal
