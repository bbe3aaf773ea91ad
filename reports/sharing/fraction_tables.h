// Tables of what sharing a GPU costs.
#pragma once

#include <string>
#include <vector>

#include "base/text_table.h"
#include "reports/compare/run_set.h"

namespace nearmetal {

/// Tables of all arms; of each of unlike jobs; of the neighbours that disturbed; and where there
/// are several batches of the best of each mode.
std::vector<TitledTable> fraction_tables(const RunSet& set);

/// "3905 GB/s", "650 TFLOP/s"
std::string rate_text(const Neighbour& neighbour);

}  // namespace nearmetal
