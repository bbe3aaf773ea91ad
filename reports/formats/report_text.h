// Runs of reports as tables: for a terminal, Markdown, the summary of GitHub, CSV.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "reports/compare/run_set.h"
#include "reports/text/text_table.h"

namespace nearmetal {

/// One row for each arm and metric, with the interval of its runs.
TextTable report_table(const RunSet& set);

/// Arms whose runs did different work, then a line for each reason why runs are left out and for
/// each kind of warning: how many runs, the range of its figures, and which is the worst.
std::vector<std::string> run_warnings(const RunSet& set);

/// Prints what was measured, the answer, how that scales, that table and those warnings, for a
/// terminal.
void print_text(std::ostream& out, const RunSet& set);

/// The same as Markdown.
void print_markdown(std::ostream& out, const RunSet& set);

/// Prints what fits into a step summary of GitHub, which drops one of over 1 MiB as a whole.
void print_github_summary(std::ostream& out, const RunSet& set);

/// Long form, RFC 4180: a header, then a line for each run and metric, the work last; then speedup
/// and efficiency of each arm that has them, with the bounds of their intervals. Text that a
/// spreadsheet would take for a formula begins with an apostrophe.
void print_csv(std::ostream& out, const RunSet& set);

}  // namespace nearmetal
