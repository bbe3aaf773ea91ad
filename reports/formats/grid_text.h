// The table of a sweep with a grid.
#pragma once

#include <vector>

#include "reports/compare/run_set.h"
#include "reports/text/text_table.h"

namespace nearmetal {

/// Where batches vary, the knee of each curve; else none.
std::vector<TitledTable> knee_tables(const RunSet& set);

}  // namespace nearmetal
