// How an arm of a sweep stands against the one with the fewest ranks.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "reports/document/maybe.h"

namespace nearmetal {

/// How the work grows with the number of ranks: the same batch on each rank as where there are
/// fewest, or the same batch in all.
enum class Scaling { weak, strong };
constexpr auto names_of(Scaling) { return std::array{"weak", "strong"}; }

struct ArmSpeedup {
  std::string against;  // the arm with the fewest ranks; itself: it is that one
  int64_t ranks = 1;
  double speedup = 1;     // against one rank of that arm
  double efficiency = 1;  // speedup / ranks
  // Bounds of the 95 % intervals.
  Maybe<double> speedup_lower{};
  Maybe<double> speedup_upper{};
  Maybe<double> efficiency_lower{};
  Maybe<double> efficiency_upper{};

  bool operator==(const ArmSpeedup&) const = default;
};

}  // namespace nearmetal
