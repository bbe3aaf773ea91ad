// How throughput grows with the number of ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reports/inference.h"
#include "reports/run_set.h"

namespace nearmetal {

/// One arm against the arm with the fewest ranks that did the same work by the same means.
struct ScalingPoint {
  std::string arm;
  std::string reference;  // the arm that it is held against; itself for the reference
  Kind kind = Kind::measured;
  int64_t ranks = 1;
  int64_t runs = 0;
  int64_t reference_ranks = 1;
  double speedup = 1;                  // throughput / that of the reference x reference_ranks
  double efficiency = 1;               // speedup / ranks
  Maybe<Interval> speedup_interval{};  // 95 %, from the spread of both arms
  Maybe<Interval> efficiency_interval{};
};

/// In the order of the set, those of arms whose group, of equal comparable keys but for the layout,
/// has two numbers of ranks or more. Of several arms with the fewest ranks the first is the
/// reference. Arms without a complete run are left out.
std::vector<ScalingPoint> scaling_of(const RunSet& set);

}  // namespace nearmetal
