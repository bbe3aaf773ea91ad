// The charts of a report or a comparison; each says what is missing where there is nothing to show.
#pragma once

#include "reports/formats/charts/chart.h"
#include "reports/formats/charts/shown_arms.h"

namespace nearmetal {

/// A bar from zero for the geometric mean of each arm, a whisker for its 95 % interval, a circle
/// for each run.
Chart throughput_chart(const ShownArms& shown);

/// Of each row of a comparison the difference with the interval that the verdict rests on, and the
/// margin.
Chart difference_chart(const Comparison& comparison);

/// Throughput against that of the arm with the fewest ranks, over the number of ranks, with the
/// ideal line; and that as a share of the ideal.
Chart speedup_chart(const ShownArms& shown);
Chart efficiency_chart(const ShownArms& shown);

/// Where jobs share a GPU, one for each question: what that gains and costs, the longest steps,
/// fairness, memory and energy.
std::vector<Chart> fraction_charts(const RunSet& set);

/// Step times of the timed window of each arm's typical run: one after another, and how they are
/// distributed.
Chart step_strip_chart(const ShownArms& shown);
Chart step_distribution_chart(const ShownArms& shown);

/// The kernels or primitives of a step, each timed alone, by phase, against the step as a whole.
Chart profile_chart(const ShownArms& shown);

/// By how much the median step of each rank differs from that of the middle rank, for each run.
Chart rank_chart(const ShownArms& shown);

/// All of them, in the order of a page; those of sharing only where jobs share.
std::vector<Chart> charts_of(const RunSet& set);
std::vector<Chart> charts_of(const RunSet& base, const RunSet& next, const Comparison& comparison);

}  // namespace nearmetal
