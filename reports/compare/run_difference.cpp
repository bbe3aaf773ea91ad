#include "reports/compare/run_difference.h"

#include <algorithm>
#include <cmath>

#include "reports/compare/run_notes.h"

namespace nearmetal {
namespace {

// The deviation of one run, or pair, from that of their mean.
RunGroup group_of(const LogEstimate& mean, size_t runs, bool can_grow) {
  return {mean.standard_error * std::sqrt(static_cast<double>(runs)), static_cast<int64_t>(runs),
          can_grow};
}

}  // namespace

Sessions sessions_of(const CountedRuns& side) {
  Sessions sessions;
  for (size_t i = 0; i < side.runs.size(); ++i) {
    sessions[side.runs[i]->session].push_back(std::log(side.values[i]));
  }
  return sessions;
}

std::vector<double> log_ratios(const CountedRuns& base, const CountedRuns& next) {
  std::vector<double> ratios;
  for (size_t i = 0; i < base.values.size(); ++i) {
    ratios.push_back(std::log(next.values[i] / base.values[i]));
  }
  return ratios;
}

std::optional<RunDifference> run_difference(const CountedRuns& base, const CountedRuns& next,
                                            const CountedRuns& others, bool base_can_grow) {
  if (std::min(base.values.size(), next.values.size()) < 2) return std::nullopt;
  const Sessions of_base_sessions = sessions_of(base), of_new_sessions = sessions_of(next);
  const auto by_sessions =
      session_difference(of_base_sessions, of_new_sessions, sessions_of(others));
  if (by_sessions) {
    return RunDifference{Method::sessions, by_sessions->estimate, by_sessions->groups, by_sessions};
  }
  // Runs of several sessions are no independent sample.
  if (std::max(of_base_sessions.size(), of_new_sessions.size()) > 1) return std::nullopt;
  if (are_pairs(base.runs, next.runs)) {
    const auto estimate = paired_difference(base.values, next.values);
    if (!estimate) return std::nullopt;
    return RunDifference{
        Method::paired, *estimate, {group_of(*estimate, next.values.size(), true)}};
  }
  const auto of_base = log_mean(base.values), of_new = log_mean(next.values);
  if (!of_base || !of_new) return std::nullopt;
  return RunDifference{Method::welch,
                       difference(*of_base, *of_new),
                       {group_of(*of_base, base.values.size(), base_can_grow),
                        group_of(*of_new, next.values.size(), true)}};
}

}  // namespace nearmetal
