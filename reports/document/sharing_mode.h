// The ways in which jobs have the same GPU, or the same CPUs.
#pragma once

#include "models/names.h"

namespace nearmetal {

/// Alone; one after another; at once, in time slices, through MPS, on multiprocessors of their own
/// (through MPS, too), each on a MIG device of its own, or each alone on the vGPU of its VM.
enum class SharingMode { alone, serial, timeslice, mps, sm, mig, vgpu };

constexpr auto names_of(SharingMode) {
  return std::array{"alone", "serial", "timeslice", "mps", "sm", "mig", "vgpu"};
}

}  // namespace nearmetal
