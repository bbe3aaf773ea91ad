// When the runs of a comparison leave no verdict, whatever their mean says.
#pragma once

#include <optional>
#include <string>

#include "reports/compare/compare.h"
#include "reports/compare/run_difference.h"

namespace nearmetal {

/// Why a row of runs of one session leaves no verdict: it would be another without one run that
/// lies far from the others, most runs contradict the mean, or it depends on when runs were taken.
/// None where it holds, and of several sessions. The row has its figures.
std::optional<std::string> doubt_of(const ComparisonRow& row, const CountedRuns& base,
                                    const CountedRuns& next, const Metric& metric,
                                    const CompareOptions& options);

}  // namespace nearmetal
