// The curves of a sweep with a grid over each of its settings.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reports/compare/run_set.h"

namespace nearmetal {

struct CurvePoint {
  const RunArm* arm = nullptr;
  std::string value;             // of the setting; --batch auto as the batch that it found
  std::optional<double> number;  // of that value, where it is one
};

/// Arms that differ in one setting of the grid alone, two or more, each with a complete run.
struct GridCurve {
  std::string setting;
  std::string others;              // in what it differs from the setting's other curves; may be ""
  std::vector<CurvePoint> points;  // numbers rise, others are in the order of the set
};

/// The curves by setting, and there in the order of the set. Their arms are those of `set`.
std::vector<GridCurve> grid_curves(const RunSet& set);

/// How far from the best throughput a smaller batch may be to be preferred: 5 %.
inline constexpr double least_share_at_knee = 0.95;

/// The smallest batch whose throughput is within 5 % of the best of its curve.
struct Knee {
  const CurvePoint* point = nullptr;
  const CurvePoint* best = nullptr;
  Estimate share{};  // of the best throughput
  bool best_is_largest = false;
};

/// None for settings that are no batch. `curve` must outlive the result.
std::optional<Knee> knee_of(const GridCurve& curve);

/// The text that arms of one combination of the grid have in common, for contexts; empty where
/// there is none. `any_batch`: whatever its batch.
std::string combination_text(const RunArm& arm, bool any_batch = false);

}  // namespace nearmetal
