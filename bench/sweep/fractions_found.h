// Which ways to share a GPU are not to be had on this machine.
#pragma once

#include <vector>

#include "comm/layout/fraction_layouts.h"
#include "reports/document/types.h"

namespace nearmetal {

/// Takes out of the layouts of --fractions those that cannot be had on its host, and tells why, by
/// their names; where there are none to take out, of the way. Throws NotSupported where no layout
/// is left.
std::vector<UnsupportedArm> leave_out_fractions(LayoutFile& file, const Fractions& fractions);

}  // namespace nearmetal
