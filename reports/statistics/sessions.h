// Two sides measured in sessions that differ: the difference, with what differs between sessions.
#pragma once

#include <optional>
#include <vector>

#include "reports/statistics/inference.h"

namespace nearmetal {

/// Logarithms of the runs of one side, those of each session by themselves; none is empty.
using Sessions = std::vector<std::vector<double>>;

/// The mean of each session.
std::vector<double> session_means(const Sessions& sessions);

struct SessionDifference {
  LogEstimate estimate;          // new - base, of means of sessions
  std::vector<RunGroup> groups;  // of the planning: that which can grow are the new runs
};

/// Runs of one session share what that session did to all of them, so that sessions are drawn
/// first, and runs within them (two-stage sampling). The error has a part between sessions, pooled
/// over both sides, and a part within them, each side's own. Where `others` are given, they stand
/// for the base in the part between sessions: they are of the same work and may contain the base's,
/// none of which counts twice. None where these tell of the part between sessions by fewer than
/// `fewest_degrees` degrees of freedom, or where no value differs from another. Degrees of freedom
/// by Satterthwaite.
std::optional<SessionDifference> session_difference(const Sessions& base, const Sessions& next,
                                                    const Sessions& others = {});

/// The degrees of freedom of four sessions of one side.
inline constexpr double fewest_degrees = 3;

}  // namespace nearmetal
