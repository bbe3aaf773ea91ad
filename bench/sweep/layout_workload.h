// What each rank of a layout is asked to train.
#pragma once

#include "comm/layout/layout.h"
#include "comm/layout/placement.h"
#include "reports/document/settings.h"

namespace nearmetal {

/// Device, workload of the file, that of the layout and what was asked on the command line, of
/// which later ones stand over earlier ones, with defaults filled. A batch of all ranks
/// ("global_batch") becomes that of each. Throws std::invalid_argument, with the place in the file,
/// for settings that `run` does not have or that the plan makes itself, that contradict each other
/// or the device, a batch that cannot be shared, and hosts that claim different environments.
Workload layout_workload(const LayoutFile& file, const Layout& layout, const Placement& placement,
                         const Workload& asked);

}  // namespace nearmetal
