// What a survey found, as a page: who is slow and why, who computes other bits, and how far the
// members of each kind lie apart.
#pragma once

#include "reports/document/types.h"
#include "reports/formats/page.h"

namespace nearmetal {

/// The report has a survey.
Page survey_page(const Report& report);

}  // namespace nearmetal
