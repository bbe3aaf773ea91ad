// The least time that work can take, by what the device reaches at best.
#pragma once

#include <algorithm>

namespace nearmetal {

/// Measured on the device itself; 0 where they were not.
struct Ceilings {
  double copy_bytes_per_second = 0;
  double matrix_flops_per_second = 0;
};

/// The roofline (Williams et al., 2009): bytes and operations at their ceilings, side by side.
inline double floor_seconds(double bytes, double flops, const Ceilings& ceilings) {
  return std::max(bytes / ceilings.copy_bytes_per_second, flops / ceilings.matrix_flops_per_second);
}

/// Whether the bytes take longer than the operations, or as long.
inline bool bytes_bind(double bytes, double flops, const Ceilings& ceilings) {
  return bytes / ceilings.copy_bytes_per_second >= flops / ceilings.matrix_flops_per_second;
}

}  // namespace nearmetal
