// `nearmetal report`, and pages of HTML with their charts, as text.
#pragma once

#include <string>

#include "reports/formats/page.h"

namespace nearmetal {

/// With `charts` drawn by gnuplot, an outside program, else tables alone; also where there is no
/// gnuplot, which a remark on the page then says. Throws std::runtime_error where it fails.
std::string html_of(Page page, bool charts);

}  // namespace nearmetal
