// Draws charts as SVG.
#pragma once

#include <string>

#include "reports/formats/charts/chart.h"

namespace nearmetal {

/// Within a page: text and lines have the colour of the text around, and the title stands there.
/// The chart is not a missing one.
std::string svg_element(const Chart& chart);

/// A file: with title and caption, dark on white.
std::string svg_file(const Chart& chart);

}  // namespace nearmetal
