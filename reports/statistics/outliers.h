// Units of a fleet - GPUs, links, hosts - that are slower than the others: judged by the spread of
// the fleet itself, or by one that is known.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "reports/statistics/inference.h"

namespace nearmetal {

// Values are ln(speed), one for each unit: the mean of its repeats. They may as well be differences
// from an earlier survey of the same units. docs/notes/survey.md has the error rates.

/// How units differ: the standard deviation of ln(speed), and how well it is known. Below 0.01 % it
/// counts as that, so that rounded or equal values make no unit stand out that hardly differs.
struct UnitSpread {
  double deviation = 0;
  double degrees_of_freedom = 0;
};

/// A unit that seems slow, beside the units that do not stand out.
struct SlowUnit {
  size_t unit = 0;         // its index
  LogEstimate difference;  // from their mean, with the error of one more unit that is as they are
  double p = 1;            // one-sided, adjusted for the number of units that might have stood out
};

/// A fleet without the units that stand out.
struct FleetSpeed {
  double centre = 0;  // the mean
  UnitSpread spread;
  double excess_kurtosis = 0;  // 0: normal; above: tails are heavy, and more is asked of suspects
  size_t units = 0;            // without those that stand out
  std::vector<SlowUnit> suspects;  // the slowest first; a fast unit is left out and is no suspect
};

/// Units that a survey must have to judge any.
inline constexpr size_t fewest_units = 4;

/// The generalised ESD procedure (Rosner, "Percentage Points for a Generalized ESD Many-Outlier
/// Procedure", 1983), of up to a quarter of the units: the farthest from the mean, on either side,
/// is removed again and again, and tested as one more of those left by Student's t; the last that
/// this rejects, and all removed before, stand out. `alpha` is the chance that any unit of a normal
/// fleet is a suspect, whatever their number. Where the kurtosis of those left shows heavy tails,
/// the test has them, too. `known` takes the place of the fleet's spread. None of fewer than
/// `fewest_units`. Throws std::invalid_argument for a value that is not finite.
std::optional<FleetSpeed> fleet_speed(std::span<const double> logs, double alpha,
                                      const std::optional<UnitSpread>& known = {});

/// The suspects in fresh repeats of them and of others, `logs`, whose differences owe nothing to
/// the selection: p is adjusted for the number of suspects, and one below alpha confirms. Their
/// interval() of confidence 1 - 2 alpha / suspects ends below 1 just then. None of fewer than
/// `fewest_machines` others. Throws std::invalid_argument for a value that is not finite,
/// std::out_of_range for an index beyond.
std::optional<std::vector<SlowUnit>> repeated_suspects(std::span<const double> logs,
                                                       std::span<const size_t> suspects,
                                                       const std::optional<UnitSpread>& known = {});

/// Share by which one unit more must be slower to be a suspect with this chance.
double detectable_slowness(const FleetSpeed& fleet, double alpha, double power,
                           const std::optional<UnitSpread>& known = {});

}  // namespace nearmetal
