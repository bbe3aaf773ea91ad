// Pages of HTML with their charts, as text.
#pragma once

#include <string>

#include "reports/formats/pages.h"

namespace nearmetal {

/// With `charts` drawn by gnuplot, which must be there (NotSupported), else tables alone.
std::string html_of(Page page, bool charts);

}  // namespace nearmetal
