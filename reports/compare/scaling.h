// How throughput grows with the number of ranks, and goes over each setting of a grid.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reports/compare/run_set.h"

namespace nearmetal {

/// One arm against the arm with the fewest ranks that did the same work by the same means.
struct ScalingPoint {
  std::string arm;
  std::string reference;  // the arm that it is compared with; itself for the reference
  std::string against;    // the same for tables: "1x1x1", or of a reference that it is one
  Kind kind = Kind::measured;
  Scaling scaling = Scaling::weak;
  double batch = 0;  // images per step of each rank; strong: of all
  int64_t ranks = 1;
  int64_t jobs = 1;       // of these ranks
  int64_t instances = 1;  // machines, or VMs of theirs
  int64_t runs = 0;
  Estimate speedup{};     // throughput / that of the reference x its ranks
  Estimate efficiency{};  // speedup / ranks

  /// Its speedup is what it is held to be, not what was measured.
  bool is_reference() const { return arm == reference; }
};

/// The points in the order of the set, those of arms whose group has two numbers of ranks or more.
/// Weak: a group has equal comparable keys but for the layout. Arms without such a group are
/// compared with those with the same batch of all ranks together: strong, whatever the learning
/// rate, which follows from the batch. In a sweep with a grid both are of one combination. The
/// first of several arms with the fewest ranks is the reference. Arms without a complete run, and
/// those whose jobs share a GPU, are left out.
std::vector<ScalingPoint> scaling_of(const RunSet& set);

/// A reference and what grows from it: arms of rising ranks and instances, of one job or several.
struct ScalingCurve {
  std::string title;                 // "1x1x1 to 1x1x4, batch 64"
  std::vector<ScalingPoint> points;  // first the reference, by its own ranks
};

/// The points of scaling_of(), each of which but the references is in one curve.
std::vector<ScalingCurve> scaling_curves(const RunSet& set);

/// For tables: "weak, 256 a rank", "strong, 1024 in all".
std::string scaling_text(const ScalingPoint& point);

/// The same as ScalingPoint::against, of an arm with a complete run that has no point: why it has
/// none, "none: '1x1x1' differs in threads".
std::string without_reference_text(const RunSet& set, const RunArm& arm);
inline constexpr const char* none_has_fewer_ranks = "none has fewer ranks";

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
