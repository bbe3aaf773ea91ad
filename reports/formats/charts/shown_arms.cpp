#include "reports/formats/charts/shown_arms.h"

#include <algorithm>

#include "base/text.h"

namespace nearmetal {
namespace {

void add_arm(ShownArms& shown, const std::string& name, const RunArm* arm, size_t side) {
  if (arm == nullptr || arm->runs.empty()) return;
  const std::string side_name = shown.sides.size() > 1 ? shown.sides[side] : "";
  shown.arms.push_back({name, side_name, shown.rows.size() - 1, side, arm->runs.front().kind, arm});
}

// A row for each name of an arm.
ShownArms arms_of(const Sides& sides) {
  ShownArms shown;
  std::vector<std::string> names;
  for (const auto& [name, set] : sides) {
    shown.sides.push_back(name);
    shown.sets.push_back(set);
    for (const RunArm& arm : set->arms) add_new(names, arm.name);
  }
  for (const std::string& name : names) {
    if (shown.rows.size() == most_rows) break;
    shown.rows.push_back(name);
    for (size_t side = 0; side < sides.size(); ++side) {
      const std::vector<RunArm>& arms = shown.sets[side]->arms;
      const auto found = std::ranges::find(arms, name, &RunArm::name);
      if (found != arms.end()) add_arm(shown, name, &*found, side);
    }
  }
  shown.left_out = names.size() - shown.rows.size();
  return shown;
}

}  // namespace

Sides sides_of(const GroupedRuns& runs) {
  Sides sides;
  for (const NamedRuns& group : runs.groups) sides.emplace_back(group.name, &group.set);
  if (sides.empty()) sides = {{"", &runs.all}};
  return sides;
}

ShownArms shown_arms(const RunSet& set) { return arms_of({{"", &set}}); }

ShownArms shown_arms(const GroupedRuns& runs) { return arms_of(sides_of(runs)); }

ShownArms shown_arms(const RunSet& base, const RunSet& next, const Comparison& comparison) {
  const SideWords& words = words_of(comparison.options.form);
  ShownArms shown{.sides = {words.base_title, words.new_title}, .sets = {&base, &next}};
  const std::vector<ArmPair> pairs = paired_arms(base, next);
  for (const ComparisonRow& row : comparison.rows) {
    if (row.metric != comparison.rows.front().metric || !row.since.empty()) continue;
    const auto pair = std::ranges::find(pairs, row.arm, &ArmPair::name);
    if (shown.rows.size() == most_rows || pair == pairs.end()) continue;
    shown.rows.push_back(row.arm);
    add_arm(shown, row.arm, pair->base, 0);
    add_arm(shown, row.arm, pair->next, 1);
  }
  shown.left_out = pairs.size() - shown.rows.size();
  return shown;
}

std::string labelled(const std::string& arm, const std::string& side) {
  return side.empty() ? arm : arm + ", " + side;
}

std::string ShownArm::label() const {
  const std::string label = labelled(name, side);
  return kind == Kind::measured ? label : label + ", " + to_string(kind);
}

}  // namespace nearmetal
