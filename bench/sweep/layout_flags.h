// What a layout says to each of its ranks: options of `run`.
#pragma once

#include <string>
#include <vector>

#include "comm/layout/layout.h"
#include "comm/layout/placement.h"

namespace nearmetal {

/// "run" and its options: device, workload of the file, that of the layout and what was asked on
/// the command line, of which later ones stand over earlier ones, and what ranks hold against what
/// they find. A batch of all ranks ("global_batch") becomes that of each. Throws
/// std::invalid_argument, with the place in the file, for settings that `run` does not have or that
/// the plan makes itself, a batch that cannot be shared, and hosts that claim different
/// environments.
std::vector<std::string> layout_flags(const LayoutFile& file, const Layout& layout,
                                      const Placement& placement,
                                      const std::vector<std::string>& asked);

}  // namespace nearmetal
