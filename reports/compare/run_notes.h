// What a reader of a comparison should know of the runs behind it.
#pragma once

#include <vector>

#include "reports/compare/compare.h"

namespace nearmetal {

enum class RunOrder { pairs, mixed, one_after_other };

/// How two sides of complete runs, each in order of their start, were taken in time. Pairs: the
/// first of each side, then the second of each, and so on, in any order within a pair. Drift, of
/// heat or clocks, cancels in pairs, adds noise where mixed, and looks like a difference where one
/// side came after the other.
RunOrder run_order(const std::vector<const SetRun*>& base, const std::vector<const SetRun*>& next);

/// What the runs warned of, each kind once, however many jobs of a run gave it, in the order in
/// which they came.
std::vector<RunWarning> warnings_of(const std::vector<const SetRun*>& runs);

/// Adds the notes of a row with figures: a kind that is not measured, order in time, runs on both
/// sides, warnings of the runs, outliers, other plans or versions of the program, too few or too
/// short runs.
void add_run_notes(ComparisonRow& row, const std::vector<const SetRun*>& base,
                   const std::vector<const SetRun*>& next, const std::vector<double>& base_values,
                   const std::vector<double>& new_values);

}  // namespace nearmetal
