#include "reports/compare/scaling.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <set>

#include "base/text.h"
#include "reports/compare/comparison_row.h"
#include "reports/compare/work_text.h"
#include "reports/statistics/inference.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

struct MeasuredArm {
  const RunArm* arm = nullptr;
  Kind kind = Kind::measured;
  int64_t ranks = 1;
  double batch = 0;              // of each rank, all micro-batches; of stages a part
  std::string weak_context{};    // what must agree but for the layout
  std::string strong_context{};  // the same, with the batch of all ranks
  Sessions runs;                 // throughput of the complete ones
};

std::string strong_context(std::vector<KeyField> key, double global_batch) {
  std::erase_if(key, [](const KeyField& field) { return follows_batch(field.name); });
  for (KeyField& field : key) {
    if (field.name == "batch") field.value = shortest(global_batch, 10);
  }
  return context_sha256(key);
}

int64_t number_in(const SetRun& run, const char* name, int64_t missing) {
  const std::string value = key_value(run, name);
  return value.empty() ? missing : std::strtoll(value.c_str(), nullptr, 10);
}

// Without values where no run is complete.
MeasuredArm measured(const RunArm& arm) {
  MeasuredArm result{.arm = &arm, .runs = throughput_sessions(arm)};
  const auto first = std::ranges::find_if(arm.runs, has_throughput);
  if (first == arm.runs.end()) return result;
  result.kind = first->kind;
  result.ranks = first->run.world_size;
  result.batch =
      static_cast<double>(number_in(*first, "batch", 0) * number_in(*first, "accumulate", 1) *
                          number_in(*first, "micro_batches", 1)) /
      static_cast<double>(number_in(*first, "pipeline", 1));
  const std::string alike = arm.group + '\0' + combination_text(arm) + '\0';
  result.weak_context = alike + context_sha256(first->key);
  result.strong_context =
      alike + strong_context(first->key, result.batch * static_cast<double>(result.ranks));
  return result;
}

int64_t instances_of(const Run& run) {
  std::set<std::pair<int64_t, std::optional<int64_t>>> instances;
  for (const Rank& rank : run.ranks) instances.insert({rank.environment, rank.vm});
  return std::max<int64_t>(1, std::ssize(instances));
}

ScalingPoint point_of(const MeasuredArm& arm, const MeasuredArm& reference, Scaling scaling) {
  ScalingPoint point{
      .arm = arm.arm->name,
      .reference = reference.arm->name,
      .against = reference.arm->name,
      .kind = arm.kind,
      .scaling = scaling,
      .batch = scaling == Scaling::weak ? arm.batch : arm.batch * static_cast<double>(arm.ranks),
      .ranks = arm.ranks,
      .jobs = std::max<int64_t>(1, std::ssize(arm.arm->runs.front().run.jobs)),
      .instances = instances_of(arm.arm->runs.front().run),
      .runs = std::ranges::count_if(arm.arm->runs, has_throughput)};
  const auto ranks = static_cast<double>(arm.ranks);
  const auto reference_ranks = static_cast<double>(reference.ranks);
  const Estimate ratio = ratio_estimate(arm.runs, reference.runs);
  point.speedup = reference_ranks * ratio;
  point.efficiency = reference_ranks / ranks * ratio;
  point.efficiency.value = point.speedup.value / ranks;
  if (arm.arm == reference.arm) {
    point.speedup.interval = point.efficiency.interval = Unknown{"the reference"};
  }
  return point;
}

// The point of the arm that it is compared with, as the reference that it is here.
ScalingPoint reference_of(const ScalingPoint& point, const std::vector<ScalingPoint>& all) {
  ScalingPoint reference = *std::ranges::find(all, point.reference, &ScalingPoint::arm);
  reference.reference = reference.arm;
  reference.scaling = point.scaling;
  reference.speedup = {static_cast<double>(reference.ranks)};
  reference.efficiency = {};
  return reference;
}

bool goes_on(const std::vector<ScalingPoint>& curve, const ScalingPoint& point) {
  const ScalingPoint& last = curve.back();
  return last.reference == point.reference && last.scaling == point.scaling &&
         last.ranks < point.ranks && last.instances <= point.instances &&
         (last.jobs > 1) == (point.jobs > 1);
}

// "1x1x1 to 1x1x4, batch 64": what both end with, after a comma, once.
std::string from_to(const std::string& first, const std::string& last) {
  size_t end = first.find(", ");
  while (end != first.npos && !last.ends_with(first.substr(end))) end = first.find(", ", end + 1);
  return first.substr(0, end) + " to " + last;
}

// Arms of one context. Any may be the reference, for those alone that have no other.
struct Group {
  const MeasuredArm* reference = nullptr;  // the first of those with the fewest ranks
  int64_t most_ranks = 0;

  void add(const MeasuredArm& arm, bool has_another) {
    if (reference == nullptr || arm.ranks < reference->ranks) reference = &arm;
    if (!has_another) most_ranks = std::max(most_ranks, arm.ranks);
  }
  bool scales() const { return most_ranks > reference->ranks; }
};

std::vector<MeasuredArm> measured_arms(const RunSet& set) {
  std::vector<MeasuredArm> arms;
  for (const RunArm& arm : set.arms) {
    if (arm.runs.empty()) continue;
    const SetRun& first = arm.runs.front();
    if (is_imported(arm) && first.run.world_size < 1) continue;  // not told
    if (!key_value(first, "share").empty()) continue;  // more of its jobs are not more GPUs
    if (!arm.whole.empty()) continue;                  // beside jobs of other work
    MeasuredArm found = measured(arm);
    if (!found.runs.empty()) arms.push_back(std::move(found));
  }
  return arms;
}

// Why none with fewer ranks is comparable, of the one that comes nearest, by the fields in which
// their work or their means differ; empty where none has fewer.
std::string not_comparable_text(const std::vector<MeasuredArm>& arms, const MeasuredArm& arm) {
  std::string nearest;
  std::vector<KeyDifference> fewest;
  for (const MeasuredArm& other : arms) {
    if (other.ranks >= arm.ranks || other.arm->group != arm.arm->group) continue;
    auto found = key_differences(arm.arm->runs.front().key, other.arm->runs.front().key);
    std::erase_if(found, [](const auto& field) { return field.severity == Severity::layout; });
    if (!nearest.empty() && found.size() >= fewest.size()) continue;
    nearest = other.arm->name;
    fewest = found;
  }
  if (nearest.empty()) return "";
  return "'" + nearest + "' differs in " +
         shortened(joined(transformed(fewest, &KeyDifference::name)));
}

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

Coordinates coordinates_of(const RunArm& arm) {
  Coordinates found = {{group_coordinate, arm.group}, {layout_coordinate, arm.grid->layout}};
  found.insert(arm.grid->settings.begin(), arm.grid->settings.end());
  return found;
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
    GridCurve* known = find_in(curves, others, &GridCurve::others);
    GridCurve& curve = known ? *known : curves.emplace_back(GridCurve{setting, others, {}});
    std::string value = asked->second;
    if (value == "auto") value = value_in(arm->runs.front().key, setting, "auto");  // as settled
    curve.points.push_back({arm, value, number_in(value)});
  }
  std::erase_if(curves, [](const GridCurve& curve) { return curve.points.size() < 2; });
  for (GridCurve& curve : curves) sort_points(curve);
  return curves;
}

}  // namespace

std::vector<ScalingPoint> scaling_of(const RunSet& set) {
  const std::vector<MeasuredArm> arms = measured_arms(set);
  std::map<std::string, Group> weak, strong;
  for (const MeasuredArm& arm : arms) weak[arm.weak_context].add(arm, false);
  for (const MeasuredArm& arm : arms) {
    strong[arm.strong_context].add(arm, weak.at(arm.weak_context).scales());
  }
  std::vector<ScalingPoint> points;
  for (const MeasuredArm& arm : arms) {
    const Group& same_batch = weak.at(arm.weak_context);
    const Group& same_total = strong.at(arm.strong_context);
    if (same_batch.scales()) {
      points.push_back(point_of(arm, *same_batch.reference, Scaling::weak));
    } else if (same_total.scales()) {
      points.push_back(point_of(arm, *same_total.reference, Scaling::strong));
    } else {
      continue;
    }
    if (!points.back().is_reference()) continue;
    const std::string why = not_comparable_text(arms, arm);
    points.back().against = why.empty() ? "reference" : "reference: " + why;
  }
  return points;
}

std::vector<ScalingCurve> scaling_curves(const RunSet& set) {
  const std::vector<ScalingPoint> all = scaling_of(set);
  std::vector<ScalingPoint> rising = all;
  std::ranges::stable_sort(rising, {}, &ScalingPoint::ranks);
  std::vector<ScalingCurve> curves;
  for (const ScalingPoint& point : rising) {
    if (point.is_reference()) continue;
    auto curve = std::ranges::find_if(
        curves, [&](const ScalingCurve& known) { return goes_on(known.points, point); });
    if (curve == curves.end()) {
      curve = curves.insert(curve, {.title = "", .points = {reference_of(point, all)}});
    }
    curve->points.push_back(point);
    curve->title = from_to(curve->points.front().arm, point.arm);
  }
  return curves;
}

std::string scaling_text(const ScalingPoint& point) {
  if (point.batch == 0) return to_string(point.scaling);  // imported, and not told
  return std::string(to_string(point.scaling)) + ", " + shortest(point.batch, 10) +
         (point.scaling == Scaling::weak ? " a rank" : " in all");
}

std::string without_reference_text(const RunSet& set, const RunArm& arm) {
  const auto ranks = [](const RunArm& one) { return one.runs.front().run.world_size; };
  const bool any_has_fewer = std::ranges::any_of(set.arms, [&](const RunArm& other) {
    return !other.runs.empty() && ranks(other) < ranks(arm);
  });
  const std::string why =
      any_has_fewer ? not_comparable_text(measured_arms(set), measured(arm)) : "";
  return why.empty() ? none_has_fewer_ranks : "none: " + why;
}

std::vector<GridCurve> grid_curves(const RunSet& set) {
  std::vector<const RunArm*> arms;
  for (const RunArm& arm : set.arms) {
    if (arm.grid && !throughput_sessions(arm).empty()) arms.push_back(&arm);
  }
  const std::vector<std::string> varying = varying_coordinates(arms);
  std::vector<GridCurve> curves;
  for (const std::string& name : varying) {
    if (!name.starts_with(' ')) append(curves, curves_over(name, arms, varying));
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
    knee.share =
        ratio_estimate(throughput_sessions(*knee.point->arm), throughput_sessions(*knee.best->arm));
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
