#include "reports/statistics/sessions.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

double count(const Sessions& sessions) { return static_cast<double>(sessions.size()); }

// Squared deviations from the mean of each group.
struct Squares {
  double sum = 0, degrees_of_freedom = 0;

  void add(std::span<const double> group) {
    if (group.size() < 2) return;
    const auto freedom = static_cast<double>(group.size() - 1);
    sum += variance(group) * freedom;
    degrees_of_freedom += freedom;
  }
  double pooled_variance() const { return degrees_of_freedom > 0 ? sum / degrees_of_freedom : 0; }
};

// Mean of 1 / runs: the part of a run's variance that is left in the mean of a session.
double share_left(const Sessions& sessions) {
  double sum = 0;
  for (const auto& [name, session] : sessions) sum += 1 / static_cast<double>(session.size());
  return sum / count(sessions);
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

// One variance between sessions, of all sides that have several: that of their means without what
// the runs in them explain, which is added for the runs that there are.
std::optional<SessionDifference> pooled_difference(const Sessions& base, const Sessions& next,
                                                   const Sessions& others) {
  Squares of_means, of_runs;
  double explained = 0;
  for (const Sessions* side : {others.empty() ? &base : &others, &next}) {
    of_means.add(session_means(*side));
    explained += (count(*side) - 1) * share_left(*side);
    for (const auto& [name, runs] : *side) of_runs.add(runs);
  }
  if (of_means.degrees_of_freedom == 0) return std::nullopt;
  const double n = count(base), m = count(next), within = of_runs.pooled_variance();
  const double between =
      std::max(0.0, of_means.pooled_variance() - within * explained / of_means.degrees_of_freedom);
  const double error =
      between * (1 / n + 1 / m) + within * (share_left(base) / n + share_left(next) / m);
  if (!(error > 0)) return std::nullopt;
  return SessionDifference{.estimate = {mean(session_means(next)) - mean(session_means(base)),
                                        std::sqrt(error), of_means.degrees_of_freedom},
                           .base = std::ssize(base),
                           .next = std::ssize(next)};
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
  return transformed(sessions, [](const auto& session) { return mean(session.second); });
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
                                       : pooled_difference(base, next, others);
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
