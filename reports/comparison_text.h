// A comparison for people: on a terminal, or as Markdown. Computes nothing but units.
#pragma once

#include <ostream>
#include <string>

#include "reports/compare.h"

namespace nearmetal {

/// Differences of keys, the table worst first with its footnotes, what else differs.
void print_comparison(std::ostream& out, const Comparison& comparison, bool colour);
void print_comparison_markdown(std::ostream& out, const Comparison& comparison);

/// "1413 [1406, 1420]", the mean alone where there is no interval, or "-".
std::string mean_text(const SideSummary& side, const Metric& metric);

/// "1 slower, 2 equivalent", of all rows.
std::string verdict_counts(const Comparison& comparison);

}  // namespace nearmetal
