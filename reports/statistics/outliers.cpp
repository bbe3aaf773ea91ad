#include "reports/statistics/outliers.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace nearmetal {
namespace {

constexpr double least_deviation = 1e-4;
constexpr size_t units_for_each_outlier = 4;

// Trying several outliers would raise a false alarm in 6 to 9 % of fleets of 8 to 32 units: the
// first and the further ones have such shares of alpha (simulated, docs/notes/survey.md).
constexpr double share_of_first = 0.7, share_of_further = 0.4;

// Sums of powers of the deviations from the mean, with each value (Pebay, "Formulas for Robust,
// One-Pass Parallel Computation of Covariances and Arbitrary-Order Statistical Moments", 2008).
struct Moments {
  double count = 0, mean = 0, squares = 0, cubes = 0, fourths = 0;

  void add(double value) {
    count += 1;
    const double step = (value - mean) / count;
    const double added = step * (value - mean) * (count - 1);
    mean += step;
    fourths += added * step * step * (count * count - 3 * count + 3) + 6 * step * step * squares -
               4 * step * cubes;
    cubes += added * step * (count - 2) - 3 * step * squares;
    squares += added;
  }

  UnitSpread spread() const { return {std::sqrt(squares / (count - 1)), count - 1}; }
  // 0 is normal, above are heavy tails.
  double excess_kurtosis() const {
    return squares > 0 ? fourths * count / (squares * squares) - 3 : 0;
  }
};

void require_finite(std::span<const double> logs) {
  const auto is_finite = [](double value) { return std::isfinite(value); };
  if (!std::ranges::all_of(logs, is_finite)) {
    throw std::invalid_argument("the logarithm of a speed is not finite");
  }
}

// One more unit - the mean of so many others, with the error that it has where it is as they are.
LogEstimate one_more(double difference, double others, const UnitSpread& spread) {
  return {difference, std::max(least_deviation, spread.deviation) * std::sqrt(1 + 1 / others),
          spread.degrees_of_freedom};
}

LogEstimate one_more(double value, const Moments& others, const std::optional<UnitSpread>& known) {
  return one_more(value - others.mean, others.count, known.value_or(others.spread()));
}

// The same where the others have heavy tails: by the Student's t that has their kurtosis, and their
// variance.
LogEstimate with_tails(LogEstimate difference, double excess_kurtosis) {
  if (excess_kurtosis <= 0) return difference;
  const double degrees = 4 + 6 / excess_kurtosis;
  return {difference.value, difference.standard_error * std::sqrt((degrees - 2) / degrees),
          degrees};
}

// How likely one more unit is so far out on this side.
double p_of_one_more(LogEstimate difference, double excess_kurtosis) {
  difference.value = std::abs(difference.value);
  return std::max(p_of_at_most(difference, 0),
                  p_of_at_most(with_tails(difference, excess_kurtosis), 0));
}

// Alpha's share of a step; a known spread is none that the choice of the outliers makes smaller.
double share_of_step(size_t step, size_t steps, bool is_spread_known) {
  if (steps == 1 || is_spread_known) return 1;
  return step == 0 ? share_of_first : share_of_further;
}

// The farthest from the mean of those left comes next; at the end, those that are left.
std::vector<size_t> farthest_first(std::span<const double> logs, size_t removed) {
  std::vector<size_t> ascending(logs.size());
  std::iota(ascending.begin(), ascending.end(), size_t{0});
  std::ranges::sort(ascending, {}, [&](size_t unit) { return logs[unit]; });
  std::vector<size_t> order;
  std::span<const size_t> left(ascending);
  double sum = std::accumulate(logs.begin(), logs.end(), 0.0);
  while (order.size() < removed) {
    const double mean = sum / static_cast<double>(left.size());
    const bool is_slow = mean - logs[left.front()] >= logs[left.back()] - mean;
    order.push_back(is_slow ? left.front() : left.back());
    left = is_slow ? left.subspan(1) : left.first(left.size() - 1);
    sum -= logs[order.back()];
  }
  order.insert(order.end(), left.begin(), left.end());
  return order;
}

}  // namespace

std::optional<FleetSpeed> fleet_speed(std::span<const double> logs, double alpha,
                                      const std::optional<UnitSpread>& known) {
  if (logs.size() < fewest_units) return std::nullopt;
  require_finite(logs);
  const size_t steps = logs.size() / units_for_each_outlier;
  const std::vector<size_t> order = farthest_first(logs, steps);
  // From within, as sums from which an outlier is taken off are not precise.
  Moments others;
  for (size_t i = steps; i < order.size(); ++i) others.add(logs[order[i]]);
  std::optional<Moments> inner;  // those within the last that stands out
  std::vector<double> p(steps + 1, 1);
  for (size_t i = steps; i-- > 0; others.add(logs[order[i]])) {
    const double of_one =
        p_of_one_more(one_more(logs[order[i]], others, known), others.excess_kurtosis());
    p[i] = std::min(p[i + 1], of_one * (others.count + 1) / share_of_step(i, steps, !!known));
    if (!inner && p[i] < alpha) inner = others;
  }
  const Moments kept = inner.value_or(others);
  const auto units = static_cast<size_t>(kept.count);
  FleetSpeed fleet{kept.mean, kept.spread(), kept.excess_kurtosis(), units, {}};
  for (size_t i = 0; i < logs.size() - units; ++i) {
    const LogEstimate difference = one_more(logs[order[i]], kept, known);
    if (difference.value < 0) fleet.suspects.push_back({order[i], difference, p[i]});
  }
  return fleet;
}

std::optional<std::vector<SlowUnit>> repeated_suspects(std::span<const double> logs,
                                                       std::span<const size_t> suspects,
                                                       const std::optional<UnitSpread>& known) {
  require_finite(logs);
  Moments others;
  for (size_t unit = 0; unit < logs.size(); ++unit) {
    if (std::ranges::find(suspects, unit) == suspects.end()) others.add(logs[unit]);
  }
  if (others.count < fewest_machines) return std::nullopt;
  std::vector<SlowUnit> repeated;
  for (const size_t unit : suspects) {
    if (unit >= logs.size()) throw std::out_of_range("a suspect that was not repeated");
    const LogEstimate difference = one_more(logs[unit], others, known);
    const double p = p_of_at_least(difference, 0) * static_cast<double>(suspects.size());
    repeated.push_back({unit, difference, std::min(1.0, p)});
  }
  return repeated;
}

double detectable_slowness(const FleetSpeed& fleet, double alpha, double power,
                           const std::optional<UnitSpread>& known) {
  const auto units = static_cast<double>(fleet.units);
  const size_t steps = (fleet.units + 1) / units_for_each_outlier;
  const LogEstimate error = one_more(0, units, known.value_or(fleet.spread));
  const double level = alpha * share_of_step(0, steps, !!known) / (units + 1);
  const DecisionRule rule = {.margin = 0, .alpha = level};
  return std::max(detectable_drop(error, rule, power),
                  detectable_drop(with_tails(error, fleet.excess_kurtosis), rule, power));
}

}  // namespace nearmetal
