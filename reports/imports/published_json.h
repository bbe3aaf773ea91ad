// The readers of published results that are JSON.
#pragma once

#include <vector>

#include "reports/imports/log_lines.h"
#include "reports/imports/published_report.h"

namespace nearmetal {

std::vector<NamedResult> results_of_mlperf(const PublishedLog& log);
std::vector<NamedResult> results_of_pairs(const PublishedLog& log, PublishedSide side);

}  // namespace nearmetal
