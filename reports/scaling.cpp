#include "reports/scaling.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "reports/compare.h"
#include "reports/inference.h"
#include "reports/metric.h"

namespace nearmetal {
namespace {

struct MeasuredArm {
  const RunArm* arm = nullptr;
  Kind kind = Kind::measured;
  int64_t ranks = 1;
  std::string context;         // what must agree but for the layout
  std::vector<double> values;  // throughput of complete runs
};

MeasuredArm measured(const RunArm& arm) {
  MeasuredArm result;
  result.arm = &arm;
  for (const SetRun& run : arm.runs) {
    const Maybe<double>& value = run.run.throughput_images_per_second;
    if (run.run.status != Status::complete || !value || !(*value > 0)) continue;
    if (result.values.empty()) {
      result.kind = run.kind;
      result.ranks = run.run.world_size;
      result.context = context_sha256(run.key);
    }
    result.values.push_back(*value);
  }
  return result;
}

double log_mean_of(const MeasuredArm& arm) {
  double sum = 0;
  for (const double value : arm.values) sum += std::log(value);
  return sum / static_cast<double>(arm.values.size());
}

ScalingPoint point_of(const MeasuredArm& arm, const MeasuredArm& reference) {
  ScalingPoint point{.arm = arm.arm->name,
                     .reference = reference.arm->name,
                     .kind = arm.kind,
                     .ranks = arm.ranks,
                     .runs = static_cast<int64_t>(arm.values.size()),
                     .reference_ranks = reference.ranks};
  const auto ranks = static_cast<double>(arm.ranks);
  const auto reference_ranks = static_cast<double>(reference.ranks);
  point.speedup = reference_ranks * std::exp(log_mean_of(arm) - log_mean_of(reference));
  point.efficiency = point.speedup / ranks;
  const auto of_arm = log_mean(arm.values);
  const auto of_reference = log_mean(reference.values);
  if (arm.arm == reference.arm) {
    point.speedup_interval = point.efficiency_interval = Unknown{"the reference"};
  } else if (!of_arm || !of_reference) {
    point.speedup_interval = point.efficiency_interval = Unknown{"fewer than 2 runs"};
  } else {
    const Interval factors = interval(difference(*of_reference, *of_arm), side_confidence);
    point.speedup_interval =
        Interval{reference_ranks * factors.lower, reference_ranks * factors.upper};
    point.efficiency_interval =
        Interval{reference_ranks * factors.lower / ranks, reference_ranks * factors.upper / ranks};
  }
  return point;
}

}  // namespace

std::vector<ScalingPoint> scaling_of(const RunSet& set) {
  std::vector<MeasuredArm> arms;
  for (const RunArm& arm : set.arms) {
    MeasuredArm found = measured(arm);
    if (!found.values.empty()) arms.push_back(std::move(found));
  }
  std::map<std::string, const MeasuredArm*> references;
  std::map<std::string, int64_t> most_ranks;
  for (const MeasuredArm& arm : arms) {
    const auto [known, added] = references.emplace(arm.context, &arm);
    if (!added && arm.ranks < known->second->ranks) known->second = &arm;
    most_ranks[arm.context] = std::max(most_ranks[arm.context], arm.ranks);
  }
  std::vector<ScalingPoint> points;
  for (const MeasuredArm& arm : arms) {
    const MeasuredArm& reference = *references.at(arm.context);
    if (most_ranks.at(arm.context) > reference.ranks) points.push_back(point_of(arm, reference));
  }
  return points;
}

}  // namespace nearmetal
