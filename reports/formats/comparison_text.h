// A comparison for people: on a terminal, as Markdown, and as a page of HTML.
#pragma once

#include <string>

#include "reports/compare/compare.h"
#include "reports/formats/page.h"

namespace nearmetal {

/// What was measured, the answer, differences of keys, the table with its footnotes, where a
/// difference comes from, and for a VM or a container what else differs.
Page page_of(const Comparison& comparison);

/// The same as a page of HTML, with charts. `verdict`: in words.
Page comparison_page(const RunSet& base, const RunSet& next, const Comparison& comparison,
                     const std::string& verdict);

}  // namespace nearmetal
