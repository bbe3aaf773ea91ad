// What fractions of a GPU look like in tables.
#pragma once

#include <string>
#include <vector>

#include "reports/compare/run_set.h"
#include "reports/text/text_table.h"

namespace nearmetal {

/// Of all arms; of the neighbours that disturbed; and where there are several batches of the best
/// of each way.
std::vector<TitledTable> fraction_tables(const RunSet& set);

/// "3905 GB/s", "650 TFLOP/s"
std::string rate_text(const Neighbour& neighbour);

/// "4 jobs, MIG: unsupported: MIG is off"
std::string unsupported_text(const UnsupportedArm& arm);

}  // namespace nearmetal
