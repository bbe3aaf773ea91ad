// Which ways to share a GPU can be had here.
#pragma once

#include <vector>

#include "comm/layout/fraction_layouts.h"
#include "comm/layout/layout.h"
#include "reports/document/types.h"

namespace nearmetal {

/// Takes out of the layouts of --fractions those that cannot be had on its host, and tells why, by
/// their names; where there are none to take out, by the names of their ways. Throws NotSupported
/// where none is left.
std::vector<UnsupportedArm> leave_out_fractions(LayoutFile& file, const Fractions& fractions);

}  // namespace nearmetal
