// The probes of a machine as a table.
#pragma once

#include <ostream>

#include "reports/document/types.h"

namespace nearmetal {

/// The probes that were timed for --attribute, of one rank.
void print_probes(std::ostream& out, const RankProbes& probed);

}  // namespace nearmetal
