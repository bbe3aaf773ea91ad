// Runs of reports as pages: for a terminal, Markdown, the summary of GitHub, HTML.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "base/text_table.h"
#include "reports/compare/read_runs.h"
#include "reports/compare/run_set.h"
#include "reports/formats/page.h"

namespace nearmetal {

/// Notes on costs; arms whose runs did different work; a line for each reason why runs are left out
/// and for each kind of warning: how many runs, the range of its figures, and which is the worst.
std::vector<std::string> run_warnings(const RunSet& set);

/// Tables that are folded away: how far apart ranks are, what was run and on what machines.
std::vector<TitledTable> details_of(const Sides& sides);

/// What was measured, the answer, how that scales, all figures and the warnings.
Page page_of(const RunSet& set);

/// The same without the figures of which a sweep has too many: a row for each layout.
Page sweep_page(const RunSet& set);

/// A page of HTML. Without steps and profiles in the sets charts of these say that there are none.
Page report_page(const GroupedRuns& runs);

/// Print page_of(set).
void print_text(std::ostream& out, const RunSet& set);
void print_markdown(std::ostream& out, const RunSet& set);

/// Prints what fits into a step summary of GitHub, which drops one of over 1 MiB as a whole.
void print_github_summary(std::ostream& out, const RunSet& set);

}  // namespace nearmetal
