// A page of tables and charts, as text, Markdown and HTML show it.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "base/text_table.h"
#include "reports/formats/charts/chart.h"

namespace nearmetal {

struct Page {
  std::string title{};                   // of HTML
  std::vector<std::string> work{};       // what was measured, where and when
  std::vector<std::string> headlines{};  // the answer
  std::vector<TitledTable> tables{};
  std::vector<std::string> remarks{};  // below the tables

  // Of HTML alone:
  std::string verdict{};      // of a gate or comparison as a whole, or empty
  size_t leading_charts = 0;  // charts above the tables
  std::vector<Chart> charts{};
  bool draws_charts = true;  // false: only their tables
};

/// Adds a table that has rows.
void add_table(std::vector<TitledTable>& tables, TitledTable table);

/// For a terminal.
void print_text(std::ostream& out, const Page& page, bool colour = false);

/// GitHub's Markdown.
void print_markdown(std::ostream& out, const Page& page);

/// One file that needs nothing else, no network, no script: light and dark, readable on a phone,
/// tables with headers for screen readers; charts without anything to show are named with their
/// reason. All text is escaped, and a policy in the file forbids it to load or run anything.
void print_html(std::ostream& out, const Page& page);

}  // namespace nearmetal
