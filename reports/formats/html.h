// Pages of HTML, each in one file that needs nothing else: no network, no script.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "reports/compare/compare.h"
#include "reports/compare/read_runs.h"
#include "reports/formats/charts/chart.h"
#include "reports/text/text_table.h"

namespace nearmetal {

struct Page {
  std::string title;
  std::vector<std::string> work{};       // what was measured, where and when
  std::vector<std::string> headlines{};  // the answer
  std::string verdict{};                 // of a gate or comparison as a whole, or empty
  size_t leading_charts = 0;             // charts above the tables
  std::vector<TitledTable> tables;
  std::vector<Chart> charts;
  std::vector<std::string> images;   // of each chart an SVG as gnuplot writes it; none: only tables
  std::vector<std::string> remarks;  // below the charts
  std::vector<TitledTable> details;  // folded away
};

/// Light and dark, readable on a phone, tables with headers for screen readers; charts without
/// anything to show are named with their reason. All text is escaped, and a policy in the file
/// forbids it to load or run anything.
void print_html(std::ostream& out, const Page& page);

/// Text that shows as itself in HTML and XML; characters that they do not allow become '?'.
std::string html_escaped(const std::string& text);

/// Sets whose runs keep steps and profile; without them charts of these say that there are none.
/// The images of the charts are for the caller to add.
Page report_page(const GroupedRuns& runs);
/// `verdict`: in words.
Page comparison_page(const RunSet& base, const RunSet& next, const Comparison& comparison,
                     const std::string& verdict);

}  // namespace nearmetal
