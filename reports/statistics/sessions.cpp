#include "reports/statistics/sessions.h"

#include <algorithm>
#include <cmath>

#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

// An estimate of a variance.
struct Component {
  double variance = 0;
  double degrees_of_freedom = 0;
};

double count(const Sessions& sessions) { return static_cast<double>(sessions.size()); }

// The variance of single runs around the mean of their session.
Component within_sessions(const Sessions& sessions) {
  double squares = 0, degrees = 0;
  for (const auto& session : sessions) {
    const auto freedom = static_cast<double>(session.size() - 1);
    if (freedom > 0) squares += variance(session) * freedom;
    degrees += freedom;
  }
  return {degrees > 0 ? squares / degrees : 0, degrees};
}

// Mean of 1 / runs: the part of a run's variance that is left in the mean of a session.
double share_left(const Sessions& sessions) {
  double sum = 0;
  for (const auto& session : sessions) sum += 1 / static_cast<double>(session.size());
  return sum / count(sessions);
}

struct SampledSide {
  const Sessions& sessions;
  Component within;
};

// The variance between sessions: that of their means without what the runs in them explain.
struct Between {
  double variance = 0;
  Component means;
};

Between between_sessions(std::span<const SampledSide> sides) {
  double squares = 0, explained = 0, degrees = 0;
  for (const SampledSide& side : sides) {
    if (side.sessions.size() < 2) continue;
    const double freedom = count(side.sessions) - 1;
    squares += freedom * variance(session_means(side.sessions));
    explained += freedom * side.within.variance * share_left(side.sessions);
    degrees += freedom;
  }
  if (degrees == 0) return {};
  return {std::max(0.0, squares - explained) / degrees, {squares / degrees, degrees}};
}

// The part that runs within sessions add to the variance of the mean of a side.
Component within_part(const SampledSide& side) {
  return {side.within.variance * share_left(side.sessions) / count(side.sessions),
          side.within.degrees_of_freedom};
}

// A sum of variances, whose degrees of freedom follow Satterthwaite.
class Sum {
 public:
  void add(double variance, const Component& known_by) {
    variance_ += variance;
    if (known_by.degrees_of_freedom > 0) {
      uncertainty_ += known_by.variance * known_by.variance / known_by.degrees_of_freedom;
    }
  }
  void add(const Component& part) { add(part.variance, part); }
  double variance() const { return variance_; }
  double degrees_of_freedom() const { return variance_ * variance_ / uncertainty_; }

 private:
  double variance_ = 0;
  double uncertainty_ = 0;
};

// A variance that more runs do not lower, as a group of as many runs as it has degrees of freedom.
RunGroup fixed_group(const Sum& sum) {
  const double runs = std::max(2.0, std::round(sum.degrees_of_freedom()) + 1);
  return {std::sqrt(sum.variance() * runs), static_cast<int64_t>(runs), false};
}

}  // namespace

std::vector<double> session_means(const Sessions& sessions) {
  std::vector<double> means;
  for (const auto& session : sessions) means.push_back(mean(session));
  return means;
}

std::optional<SessionDifference> session_difference(const Sessions& base, const Sessions& next,
                                                    const Sessions& others) {
  SampledSide sides[] = {{base, within_sessions(base)}, {next, within_sessions(next)}};
  if (sides[0].within.degrees_of_freedom == 0) sides[0].within = sides[1].within;
  if (sides[1].within.degrees_of_freedom == 0) sides[1].within = sides[0].within;
  const SampledSide other = {others, within_sessions(others)};
  const SampledSide spread[] = {others.empty() ? sides[0] : other, sides[1]};
  const Between between = between_sessions(spread);
  if (between.means.degrees_of_freedom < fewest_degrees) return std::nullopt;
  const double weight = 1 / count(base) + 1 / count(next);
  Sum sum;
  sum.add(between.variance * weight,
          {between.means.variance * weight, between.means.degrees_of_freedom});
  sum.add(within_part(sides[0]));
  const bool one_can_grow = next.size() == 1 && sides[1].within.variance > 0 && next[0].size() > 1;
  const Sum without_new = sum;
  sum.add(within_part(sides[1]));
  if (!(sum.variance() > 0)) return std::nullopt;
  SessionDifference found;
  found.estimate = {mean(session_means(next)) - mean(session_means(base)),
                    std::sqrt(sum.variance()), sum.degrees_of_freedom()};
  if (one_can_grow && without_new.variance() > 0) {
    found.groups = {
        fixed_group(without_new),
        {std::sqrt(sides[1].within.variance), static_cast<int64_t>(next[0].size()), true}};
  } else {
    found.groups = {fixed_group(sum)};
  }
  return found;
}

}  // namespace nearmetal
