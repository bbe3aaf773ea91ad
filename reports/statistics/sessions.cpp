#include "reports/statistics/sessions.h"

#include <algorithm>
#include <cmath>
#include <limits>

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
  for (const auto& [name, session] : sessions) {
    const auto freedom = static_cast<double>(session.size() - 1);
    if (freedom > 0) squares += variance(session) * freedom;
    degrees += freedom;
  }
  return {degrees > 0 ? squares / degrees : 0, degrees};
}

// Mean of 1 / runs: the part of a run's variance that is left in the mean of a session.
double share_left(const Sessions& sessions) {
  double sum = 0;
  for (const auto& [name, session] : sessions) sum += 1 / static_cast<double>(session.size());
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

// A sum of variances, whose degrees of freedom follow Satterthwaite. That formula is for whole
// estimates: where the part between sessions is what is left of a larger one, it can fall below the
// degrees of every part, which the sum never has.
class Sum {
 public:
  void add(double variance, const Component& known_by) {
    variance_ += variance;
    if (known_by.degrees_of_freedom > 0) {
      uncertainty_ += known_by.variance * known_by.variance / known_by.degrees_of_freedom;
      fewest_ = std::min(fewest_, known_by.degrees_of_freedom);
    }
  }
  void add(const Component& part) { add(part.variance, part); }
  double variance() const { return variance_; }
  double degrees_of_freedom() const {
    return std::max(fewest_, variance_ * variance_ / uncertainty_);
  }

 private:
  double variance_ = 0;
  double uncertainty_ = 0;
  double fewest_ = std::numeric_limits<double>::infinity();
};

// A variance that more runs do not lower, as a group of as many runs as it has degrees of freedom.
RunGroup fixed_group(const Sum& sum) {
  const double runs = std::max(2.0, std::round(sum.degrees_of_freedom()) + 1);
  return {std::sqrt(sum.variance() * runs), static_cast<int64_t>(runs), false};
}

// The sums of the terms within the sessions that all of them have; empty where these are no blocks.
std::vector<double> blocks_of(std::span<const SessionTerm> terms) {
  std::vector<double> sums;
  size_t most = 0;
  for (const SessionTerm& term : terms) most = std::max(most, term.runs.size());
  for (const auto& session : terms.front().runs) {
    double sum = 0;
    const bool in_all = std::ranges::all_of(terms, [&](const SessionTerm& term) {
      const auto found = term.runs.find(session.first);
      if (found != term.runs.end()) sum += term.weight * mean(found->second);
      return found != term.runs.end();
    });
    if (in_all) sums.push_back(sum);
  }
  return sums.size() >= 2 && 2 * sums.size() > most ? sums : std::vector<double>{};
}

std::optional<SessionDifference> difference_of_means(const Sessions& base, const Sessions& next) {
  const std::vector<double> of_base = session_means(base), of_next = session_means(next);
  const double n = count(base), m = count(next);
  const double base_part = variance(of_base) / n, next_part = variance(of_next) / m;
  const double error = base_part + next_part;
  if (!(error > 0)) return std::nullopt;
  // Of equally many the pooled error is the same, with all degrees of freedom.
  const double degrees =
      n == m ? n + m - 2
             : error * error / (base_part * base_part / (n - 1) + next_part * next_part / (m - 1));
  return SessionDifference{.estimate = {mean(of_next) - mean(of_base), std::sqrt(error), degrees},
                           .base = std::ssize(base),
                           .next = std::ssize(next)};
}

std::optional<SessionDifference> difference_of_parts(const Sessions& base, const Sessions& next,
                                                     const Sessions& others) {
  SampledSide sides[] = {{base, within_sessions(base)}, {next, within_sessions(next)}};
  if (sides[0].within.degrees_of_freedom == 0) sides[0].within = sides[1].within;
  if (sides[1].within.degrees_of_freedom == 0) sides[1].within = sides[0].within;
  const SampledSide other = {others, within_sessions(others)};
  const SampledSide spread[] = {others.empty() ? sides[0] : other, sides[1]};
  const Between between = between_sessions(spread);
  if (between.means.degrees_of_freedom < 1) return std::nullopt;
  const double weight = 1 / count(base) + 1 / count(next);
  Sum sum;
  sum.add(between.variance * weight,
          {between.means.variance * weight, between.means.degrees_of_freedom});
  sum.add(within_part(sides[0]));
  const size_t new_runs = next.begin()->second.size();
  const bool one_can_grow = next.size() == 1 && sides[1].within.variance > 0 && new_runs > 1;
  const Sum without_new = sum;
  sum.add(within_part(sides[1]));
  if (!(sum.variance() > 0)) return std::nullopt;
  SessionDifference found{.estimate = {mean(session_means(next)) - mean(session_means(base)),
                                       std::sqrt(sum.variance()), sum.degrees_of_freedom()},
                          .base = std::ssize(base),
                          .next = std::ssize(next)};
  if (one_can_grow && without_new.variance() > 0) {
    found.groups = {fixed_group(without_new),
                    {std::sqrt(sides[1].within.variance), static_cast<int64_t>(new_runs), true}};
  }
  return found;
}

// The error after so many more sessions, whose means spread as those so far.
LogEstimate error_with_more(const SessionDifference& found, bool base_can_grow, int64_t added) {
  const auto grown = [&](int64_t of_base, int64_t of_next) {
    const auto n = static_cast<double>(of_base), m = static_cast<double>(of_next);
    return found.are_blocks ? std::pair(1 / m, m - 1) : std::pair(1 / n + 1 / m, n + m - 2);
  };
  const auto [part, degrees] = grown(found.base, found.next);
  const auto [new_part, new_degrees] =
      grown(found.base + (base_can_grow ? added : 0), found.next + added);
  return {0, found.estimate.standard_error * std::sqrt(new_part / part),
          found.estimate.degrees_of_freedom + new_degrees - degrees};
}

}  // namespace

std::vector<double> session_means(const Sessions& sessions) {
  std::vector<double> means;
  for (const auto& [name, runs] : sessions) means.push_back(mean(runs));
  return means;
}

std::optional<SessionDifference> session_difference(const Sessions& base, const Sessions& next,
                                                    const Sessions& others) {
  if (base.empty() || next.empty()) return std::nullopt;
  const SessionTerm terms[] = {{1, next}, {-1, base}};
  if (const std::vector<double> blocks = blocks_of(terms); !blocks.empty()) {
    const auto estimate = mean_of_logs(blocks);
    if (!estimate) return std::nullopt;
    return SessionDifference{.estimate = *estimate,
                             .are_blocks = true,
                             .base = std::ssize(blocks),
                             .next = std::ssize(blocks)};
  }
  const bool both_spread = base.size() > 1 && next.size() > 1;
  return both_spread && others.empty() ? difference_of_means(base, next)
                                       : difference_of_parts(base, next, others);
}

std::optional<LogEstimate> sum_over_sessions(std::span<const SessionTerm> terms) {
  if (const std::vector<double> blocks = blocks_of(terms); !blocks.empty()) {
    return mean_of_logs(blocks);
  }
  const bool is_difference = terms.size() == 2 && terms[0].weight == -terms[1].weight;
  if (is_difference) {
    auto found = session_difference(terms[1].runs, terms[0].runs);
    if (!found) return std::nullopt;
    found->estimate.value *= terms[0].weight;
    found->estimate.standard_error *= std::abs(terms[0].weight);
    return found->estimate;
  }
  std::vector<std::pair<double, LogEstimate>> parts;
  for (const SessionTerm& term : terms) {
    const auto estimate = mean_of_logs(session_means(term.runs));
    if (!estimate) return std::nullopt;
    parts.emplace_back(term.weight, *estimate);
  }
  return combined(parts);
}

std::optional<int64_t> more_sessions_to_decide(const SessionDifference& found, double truth,
                                               bool base_can_grow, const DecisionRule& rule,
                                               double power) {
  return fewest_that_decide(
      [&](int64_t added) { return error_with_more(found, base_can_grow, added); }, truth, rule,
      power);
}

}  // namespace nearmetal
