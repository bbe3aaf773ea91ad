// What a page of HTML shows of a report, and of a comparison.
#pragma once

#include <string>

#include "reports/compare/compare.h"
#include "reports/formats/html.h"

namespace nearmetal {

/// Sets whose runs keep steps and profile; without them charts of these say that there are none.
/// The images of the charts are for the caller to add.
Page report_page(const RunSet& set);
/// `answer`: the verdict in words.
Page comparison_page(const RunSet& base, const RunSet& next, const Comparison& comparison,
                     const std::string& answer);

}  // namespace nearmetal
