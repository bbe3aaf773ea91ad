// Arms measured in sessions that differ: means of what they share, with what differs between
// sessions.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reports/statistics/inference.h"

namespace nearmetal {

// Runs of one session share what that session did to all of them, so that sessions are drawn first,
// and runs within them (two-stage sampling): the mean of a session is the unit.

/// Logarithms of the runs of one arm, by the name of their session; none is empty.
using Sessions = std::map<std::string, std::vector<double>>;

/// The mean of each session, in the order of their names.
std::vector<double> session_means(const Sessions& sessions);

/// One of several means that are added up: {+1 new, -1 base} is the logarithm of a ratio.
struct SessionTerm {
  double weight = 1;
  Sessions runs;
};

/// The terms whose sessions are more than half in all of them, at least two, are of blocks: what a
/// session did to all terms cancels in the sum within it. Others are independent, each with the
/// spread of the means of its own sessions; of two terms as in session_difference(). None where
/// their sessions do not tell how sessions differ.
std::optional<LogEstimate> sum_over_sessions(std::span<const SessionTerm> terms);

struct SessionDifference {
  LogEstimate estimate;        // new - base, of means of sessions
  bool are_blocks = false;     // sessions of both sides
  int64_t base = 0, next = 0;  // sessions that count
};

/// Of sides whose sessions are blocks, the differences within them. Else the variance of the means
/// of sessions is pooled over the sides where both have equally many, and each side's own where the
/// numbers differ (Welch). Where a side has a single session, or `others` stand for the base (they
/// are of the same work and may contain the base's, none of which counts twice), it is pooled over
/// the sides that have several, and sessions of fewer runs than theirs err by more. None where no
/// side has two sessions, or where no value differs from another.
std::optional<SessionDifference> session_difference(const Sessions& base, const Sessions& next,
                                                    const Sessions& others = {});

/// The fewest sessions to add to each side that can grow, each with as many runs as now, so that
/// the verdict is firm with this chance if the true difference is `truth`. None where 1000 do not
/// do.
std::optional<int64_t> more_sessions_to_decide(const SessionDifference& found, double truth,
                                               bool base_can_grow, const DecisionRule& rule,
                                               double power);

}  // namespace nearmetal
