// The ways in which jobs have the same GPU, or the same CPUs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/names.h"

namespace nearmetal {

/// Alone; one after another; at once, in time slices, through MPS, on multiprocessors of their own
/// (through MPS, too), each on a MIG device of its own, or each alone on the vGPU of its VM.
enum class SharingMode { alone, serial, timeslice, mps, sm, mig, vgpu };

constexpr auto names_of(SharingMode) {
  return std::array{"alone", "serial", "timeslice", "mps", "sm", "mig", "vgpu"};
}

/// How the jobs of an arm have one GPU, or the same CPUs.
struct ArmShare {
  SharingMode mode = SharingMode::alone;
  int64_t jobs = 1;
  // By job, those of neighbours last:
  std::vector<int64_t> threads_percent;   // of the multiprocessors; empty: no limit
  std::vector<int64_t> memory_gib;        // of the GPU, 0: no limit; empty: none has one
  std::vector<std::string> neighbours{};  // what each that trains nothing does: copy, compute, pcie
  std::vector<std::string> profiles{};    // of MIG devices (else the UUID) or vGPUs

  bool operator==(const ArmShare&) const = default;
};

}  // namespace nearmetal
