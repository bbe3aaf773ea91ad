// The charts of a report or a comparison; each says what is missing where there is nothing to show.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reports/compare/compare.h"
#include "reports/compare/read_runs.h"
#include "reports/formats/charts/chart.h"

namespace nearmetal {

/// Beyond, a chart could not be read.
inline constexpr size_t most_rows = 24;

struct ShownArm {
  std::string name;  // of the arm
  std::string side;  // "base", "new", "bare metal", "VM", a group; empty where there is one side
  size_t row = 0;    // arms that are compared with each other share one
  size_t side_index = 0;
  Kind kind = Kind::measured;
  const RunArm* arm = nullptr;

  /// "1x2", "1x2, VM" or "1x2, VM, emulated".
  std::string label() const;
};

struct ShownArms {
  std::vector<ShownArm> arms{};  // by row, then by side
  std::vector<std::string> rows{};
  std::vector<std::string> sides{};   // one, two, or as many as there are groups
  std::vector<const RunSet*> sets{};  // of each side
  size_t left_out = 0;                // rows beyond most_rows
};

/// "1x2", or "1x2, VM"; `side` may be empty.
std::string labelled(const std::string& arm, const std::string& side);

/// Why there is no chart of scaling.
inline constexpr const char* one_number_of_ranks =
    "no arms did the same work with different numbers of ranks";

/// " 3 more are not shown.", or nothing.
std::string left_out_text(size_t left_out);

/// " n = 5.", or where they differ " n: 1x1 5, 1x2 4."; of name and count.
std::string counts_text(const std::vector<std::pair<std::string, std::string>>& counts);

/// Sets must outlive what is returned.
ShownArms shown_arms(const RunSet& set);
/// Arms of the same name in one row, a side for each group.
ShownArms shown_arms(const std::vector<NamedRuns>& groups);
/// The arms in the order of the comparison.
ShownArms shown_arms(const RunSet& base, const RunSet& next, const Comparison& comparison);

/// The complete run of an arm with the median throughput that `has` what a chart needs; null where
/// none has.
const Run* typical_run(const RunArm& arm, bool (*has)(const Run& run));

/// Step times of the timed window, of the rank whose steps took longest; empty where they are not
/// kept.
std::span<const double> window_steps(const Run& run);

/// A bar from zero for the geometric mean of each arm, a whisker for its 95 % interval, a circle
/// for each run.
Chart throughput_chart(const ShownArms& shown);

/// The difference of each row of a comparison, with the interval that the verdict rests on, and the
/// margin.
Chart difference_chart(const Comparison& comparison);

/// Throughput against that of the arm with the fewest ranks, over the number of ranks, with the
/// ideal line; and that as a share of the ideal.
Chart speedup_chart(const ShownArms& shown);
Chart efficiency_chart(const ShownArms& shown);

/// Where jobs share a GPU, one for each question: what that gains and costs, the longest steps,
/// fairness, memory and energy.
std::vector<Chart> fraction_charts(const RunSet& set);

/// Charts of a sweep with a grid, for each setting of several values: throughput, samples for a
/// joule and memory over it, a curve for each combination of the others.
std::vector<Chart> grid_charts(const RunSet& set);

/// Step times of the timed window of each arm's typical run: one after another, and how they are
/// distributed.
Chart step_strip_chart(const ShownArms& shown);
Chart step_distribution_chart(const ShownArms& shown);

/// The kernels or primitives of a step, each timed alone, by phase, against the step as a whole.
Chart profile_chart(const ShownArms& shown);

/// When each stage of a pipeline computed each micro-batch of a step.
Chart pipeline_chart(const ShownArms& shown);

/// The difference of the median step of each rank from that of the middle rank, for each run.
Chart rank_chart(const ShownArms& shown);

/// All of them, in the order of a page; those of sharing only where jobs share, of a grid where
/// there is one, and of a pipeline where an arm is one.
std::vector<Chart> charts_of(const GroupedRuns& runs);
std::vector<Chart> charts_of(const RunSet& base, const RunSet& next, const Comparison& comparison);

}  // namespace nearmetal
