#include "reports/compare/run_difference.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "reports/compare/comparison_row.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

constexpr size_t fewest_shared_sessions = static_cast<size_t>(fewest_degrees) + 1;

std::vector<double> exponentials(std::vector<double> logs) {
  for (double& log : logs) log = std::exp(log);
  return logs;
}

RunGroup group_of_pairs(const LogEstimate& estimate, size_t pairs, bool can_grow) {
  return {estimate.standard_error * std::sqrt(static_cast<double>(pairs)),
          static_cast<int64_t>(pairs), can_grow};
}

RunGroup group_of(const LogEstimate& side, size_t runs, bool can_grow) {
  return group_of_pairs(side, runs, can_grow);  // the deviation of one run, from that of the mean
}

// Sessions that both sides were measured in are blocks: what they did to both cancels.
std::optional<RunDifference> difference_of_blocks(const Sessions& base, const Sessions& next) {
  if (base.size() < fewest_shared_sessions) return std::nullopt;
  const auto estimate =
      paired_difference(exponentials(session_means(base)), exponentials(session_means(next)));
  if (!estimate) return std::nullopt;
  return RunDifference{
      Method::sessions, *estimate, {group_of_pairs(*estimate, base.size(), false)}};
}

std::optional<RunDifference> difference_by_sessions(const CountedRuns& base,
                                                    const CountedRuns& next,
                                                    const CountedRuns& others) {
  const Sessions of_base = sessions_of(base), of_next = sessions_of(next);
  if (share_sessions(base.runs, next.runs)) return difference_of_blocks(of_base, of_next);
  const auto found = session_difference(of_base, of_next, sessions_of(others));
  if (!found) return std::nullopt;
  return RunDifference{Method::sessions, found->estimate, found->groups};
}

}  // namespace

Sessions sessions_of(const CountedRuns& side) {
  std::map<std::string, std::vector<double>> by_name;
  for (size_t i = 0; i < side.runs.size(); ++i) {
    by_name[side.runs[i]->session].push_back(std::log(side.values[i]));
  }
  Sessions sessions;
  for (auto& [name, logs] : by_name) sessions.push_back(std::move(logs));
  return sessions;
}

bool share_sessions(const std::vector<const SetRun*>& base,
                    const std::vector<const SetRun*>& next) {
  const auto names_of = [](const std::vector<const SetRun*>& runs) {
    std::set<std::string> names;
    for (const SetRun* run : runs) names.insert(run->session);
    return names;
  };
  return names_of(base) == names_of(next);
}

std::optional<RunDifference> run_difference(const CountedRuns& base, const CountedRuns& next,
                                            const CountedRuns& others, bool base_can_grow) {
  if (std::min(base.values.size(), next.values.size()) < 2) return std::nullopt;
  if (const auto found = difference_by_sessions(base, next, others)) return found;
  if (are_pairs(base.runs, next.runs)) {
    const auto estimate = paired_difference(base.values, next.values);
    if (!estimate) return std::nullopt;
    const RunGroup pairs = group_of_pairs(*estimate, next.values.size(), true);
    return RunDifference{Method::paired, *estimate, {pairs}};
  }
  const auto of_base = log_mean(base.values), of_new = log_mean(next.values);
  if (!of_base || !of_new) return std::nullopt;
  return RunDifference{Method::welch,
                       difference(*of_base, *of_new),
                       {group_of(*of_base, base.values.size(), base_can_grow),
                        group_of(*of_new, next.values.size(), true)}};
}

}  // namespace nearmetal
