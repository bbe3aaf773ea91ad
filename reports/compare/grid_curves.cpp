#include "reports/compare/grid_curves.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "base/text.h"
#include "reports/compare/comparison_row.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

using Coordinates = std::map<std::string, std::string>;

// Names that no setting has.
constexpr const char* group_coordinate = " group";
constexpr const char* layout_coordinate = " layout";

bool is_batch(const std::string& setting) {
  return setting == "batch" || setting == "global_batch";
}

std::optional<double> number_in(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The value as it was settled, where it was left to the program.
std::string resolved_value(const RunArm& arm, const std::string& setting,
                           const std::string& asked) {
  if (asked != "auto") return asked;
  for (const KeyField& field : arm.runs.front().key) {
    if (field.name == setting) return field.value;
  }
  return asked;
}

Coordinates coordinates_of(const RunArm& arm) {
  Coordinates found = {{group_coordinate, arm.group}, {layout_coordinate, arm.grid->layout}};
  found.insert(arm.grid->settings.begin(), arm.grid->settings.end());
  return found;
}

std::vector<const RunArm*> arms_of_grid(const RunSet& set) {
  std::vector<const RunArm*> arms;
  for (const RunArm& arm : set.arms) {
    if (arm.grid && !throughput_sessions(arm).empty()) arms.push_back(&arm);
  }
  return arms;
}

// The coordinates that have several values, by their order in the arms.
std::vector<std::string> varying_coordinates(const std::vector<const RunArm*>& arms) {
  std::map<std::string, std::set<std::string>> values;
  for (const RunArm* arm : arms) {
    for (const auto& [name, value] : coordinates_of(*arm)) values[name].insert(value);
  }
  std::vector<std::string> names;
  for (const auto& [name, of_name] : values) {
    if (of_name.size() > 1) names.push_back(name);
  }
  return names;
}

// "1x1x2, precision bf16": what varies but for `setting`.
std::string others_text(const Coordinates& coordinates, const std::vector<std::string>& varying,
                        const std::string& setting) {
  std::vector<std::string> words;
  for (const std::string& name : varying) {
    const auto found = coordinates.find(name);
    if (name == setting || found == coordinates.end() || found->second.empty()) continue;
    const bool is_name = name.starts_with(' ');
    words.push_back(is_name ? found->second : name + " " + found->second);
  }
  return joined(words);
}

void sort_points(GridCurve& curve) {
  const bool numbers = std::ranges::all_of(
      curve.points, [](const CurvePoint& point) { return point.number.has_value(); });
  if (!numbers) {
    for (CurvePoint& point : curve.points) point.number.reset();
    return;
  }
  std::ranges::stable_sort(curve.points, {}, [](const CurvePoint& point) { return *point.number; });
}

std::vector<GridCurve> curves_over(const std::string& setting,
                                   const std::vector<const RunArm*>& arms,
                                   const std::vector<std::string>& varying) {
  std::vector<GridCurve> curves;
  for (const RunArm* arm : arms) {
    const Coordinates coordinates = coordinates_of(*arm);
    const auto asked = coordinates.find(setting);
    if (asked == coordinates.end()) continue;
    const std::string others = others_text(coordinates, varying, setting);
    auto curve = std::ranges::find(curves, others, &GridCurve::others);
    if (curve == curves.end()) curve = curves.insert(curve, {setting, others, {}});
    const std::string value = resolved_value(*arm, setting, asked->second);
    curve->points.push_back({arm, value, number_in(value)});
  }
  std::erase_if(curves, [](const GridCurve& curve) { return curve.points.size() < 2; });
  for (GridCurve& curve : curves) sort_points(curve);
  return curves;
}

}  // namespace

std::vector<GridCurve> grid_curves(const RunSet& set) {
  const std::vector<const RunArm*> arms = arms_of_grid(set);
  const std::vector<std::string> varying = varying_coordinates(arms);
  std::vector<GridCurve> curves;
  for (const std::string& name : varying) {
    if (name.starts_with(' ')) continue;
    std::ranges::move(curves_over(name, arms, varying), std::back_inserter(curves));
  }
  return curves;
}

std::optional<Knee> knee_of(const GridCurve& curve) {
  const bool numbers = !curve.points.empty() && curve.points.front().number.has_value();
  if (!is_batch(curve.setting) || !numbers) return std::nullopt;
  const auto mean = [](const CurvePoint& point) {
    return mean_of(throughput_sessions(*point.arm));
  };
  Knee knee;
  knee.best = &*std::ranges::max_element(curve.points, {}, mean);
  const double best = mean(*knee.best);
  knee.point = &*std::ranges::find_if(curve.points, [&](const CurvePoint& point) {
    return mean(point) >= least_share_at_knee * best;
  });
  knee.share.interval = Unknown{"it is the best"};
  if (knee.point != knee.best) {
    const SessionTerm terms[] = {{1, throughput_sessions(*knee.point->arm)},
                                 {-1, throughput_sessions(*knee.best->arm)}};
    knee.share = estimate_around(mean(*knee.point) / best, terms);
  }
  knee.best_is_largest = knee.best == &curve.points.back();
  return knee;
}

std::string combination_text(const RunArm& arm, bool any_batch) {
  std::string text;
  if (!arm.grid) return text;
  for (const auto& [setting, value] : arm.grid->settings) {
    if (!any_batch || !is_batch(setting)) text += setting + '\0' + value + '\0';
  }
  return text;
}

}  // namespace nearmetal
