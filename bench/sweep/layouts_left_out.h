// Layouts that were asked for and are not supported where they would run.
#pragma once

#include <vector>

#include "comm/layout/fraction_layouts.h"
#include "comm/layout/layout.h"
#include "reports/document/types.h"

namespace nearmetal {

/// Takes out those that name no GPUs (Layout::portable) and share in a way that their host does not
/// have, and tells why. Throws NotSupported where none is left.
std::vector<UnsupportedArm> leave_out_portable(LayoutFile& file);

/// Takes out of the layouts of --fractions those that its host does not support, and says why, by
/// their names, or by that of the way where there are none to take out. Throws NotSupported as
/// above.
std::vector<UnsupportedArm> leave_out_fractions(LayoutFile& file, const Fractions& fractions);

}  // namespace nearmetal
