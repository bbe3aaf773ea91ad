// The answer in a sentence, as it stands above tables and charts.
#pragma once

#include <string>
#include <vector>

#include "reports/compare/compare.h"
#include "reports/compare/run_set.h"

namespace nearmetal {

/// "The VM is slower than bare metal, -6.00 % [-7.9, -4.1]: SLOWER"; without figures why: verdict.
std::string sentence_of(const ComparisonRow& row, const CompareOptions& options);

/// The sentence of each metric; for several rows that of their geometric mean, with how many rows
/// have which verdict. Behind it what threatens it, unless a sentence before said so. Last the
/// bits.
std::vector<std::string> headlines(const Comparison& comparison);

/// Of a report: what the best way to share a GPU gains, the speedup of the arms with the most
/// ranks, or the throughput of a few arms; that no run is complete. Empty where it is none of
/// these.
std::vector<std::string> headlines(const RunSet& set);

/// "1 SLOWER, 2 EQUIVALENT; bits: same", of all rows.
std::string verdict_counts(const Comparison& comparison);

/// Whether the first line says it, so that the notes need not.
bool is_in_headline(const Warning& note);

}  // namespace nearmetal
