// The charts of a report or a comparison, and the arms that they show, each in its row and on its
// side; each chart says what is missing where there is nothing to show.
#pragma once

#include <string>
#include <vector>

#include "reports/compare/compare.h"
#include "reports/compare/read_runs.h"
#include "reports/formats/charts/chart.h"

namespace nearmetal {

/// Beyond, a chart could not be read.
inline constexpr size_t most_rows = 24;
inline constexpr size_t most_arms = 8;  // whose runs or steps are shown one by one
inline constexpr size_t most_curves = colour_count;

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
  std::string compared{};             // "VM against bare metal"; empty where nothing is
};

/// "Throughput: VM against bare metal", or without what is compared.
std::string titled(const std::string& title, const ShownArms& shown);

/// "1x2", or "1x2, VM"; `side` may be empty.
std::string labelled(const std::string& arm, const std::string& side);

struct Bar {
  size_t row = 0;
  size_t side = 0;
  Kind kind = Kind::measured;
  Estimate figure{};
  std::vector<double> circles{};
};

struct Bars {
  std::vector<std::string> rows{};
  std::vector<std::string> sides{};
  std::string axis{};            // title of the values
  std::optional<double> line{};  // a value to be marked
  std::vector<Bar> bars{};
};

/// The chart of these bars; without one it is missing, and why.
Chart bar_chart(Chart chart, const Bars& bars, const std::string& missing);

// Sets must outlive what these return.

/// Each group, or all runs as the only side.
Sides sides_of(const GroupedRuns& runs);
ShownArms shown_arms(const RunSet& set);
/// Arms of the same name in one row, a side for each group.
ShownArms shown_arms(const GroupedRuns& runs);
/// The arms in the order of the comparison.
ShownArms shown_arms(const RunSet& base, const RunSet& next, const Comparison& comparison);

/// Where jobs share a GPU, what that gains, and what it costs each.
std::vector<Chart> fraction_charts(const RunSet& set);

/// Charts of a sweep with a grid, for each setting of several values: throughput over it, a curve
/// for each combination of the others; their tables also have memory and samples for a joule.
std::vector<Chart> grid_charts(const RunSet& set);

/// All of them, in the order of a page; those of sharing only where jobs share, of a grid where
/// there is one, and of a pipeline where an arm is one.
std::vector<Chart> charts_of(const GroupedRuns& runs);
std::vector<Chart> charts_of(const RunSet& base, const RunSet& next, const Comparison& comparison);

}  // namespace nearmetal
