// A report as one HTML file that needs nothing else: no network, no script.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "reports/run_set.h"

namespace nearmetal {

struct Figure {
  std::string caption;
  std::string svg;  // an XML document as gnuplot writes it
};

/// Light and dark, readable on a phone, tables with headers for screen readers. All text from
/// reports is escaped, and a policy in the file forbids it to load or run anything.
void print_html(std::ostream& out, const RunSet& set, const std::vector<Figure>& figures);

/// Text that shows as itself in HTML and XML; characters that they do not allow become '?'.
std::string html_escaped(const std::string& text);

}  // namespace nearmetal
