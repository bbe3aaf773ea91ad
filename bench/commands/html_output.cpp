#include "bench/commands/html_output.h"

#include <sstream>

#include "bench/commands/gnuplot.h"

namespace nearmetal {

std::string html_of(Page page, bool charts) {
  for (const Chart& chart : page.charts) {
    if (!charts) break;
    page.images.push_back(chart.missing.empty() ? draw(script_with_data(chart)) : "");
  }
  std::ostringstream text;
  print_html(text, page);
  return text.str();
}

}  // namespace nearmetal
