// The modes in which jobs share a GPU, or CPUs: of one job, and of all jobs of an arm.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/names.h"

namespace nearmetal {

/// Alone; one after another; at once, in time slices, through MPS, on multiprocessors of their own
/// (through MPS, too), each on a MIG device of its own, or each alone on the vGPU of its VM.
enum class SharingMode { alone, serial, timeslice, mps, sm, mig, vgpu };

constexpr auto names_of(SharingMode) {
  return std::array{"alone", "serial", "timeslice", "mps", "sm", "mig", "vgpu"};
}

/// How one job has its part of the GPUs or CPUs that jobs share.
struct Share {
  SharingMode mode = SharingMode::alone;
  std::optional<int64_t> threads_percent{};  // mps, sm: of the multiprocessors, at most
  std::optional<int64_t> memory_gib{};       // mps, sm: of each GPU, at most
  std::optional<std::string> profile{};      // mig: 1g.18gb, else any; vgpu: A100-40C
  std::optional<std::string> instance{};     // mig: the UUID, instead of a profile

  bool operator==(const Share&) const = default;
};

/// Whether the jobs are clients of an MPS daemon.
inline bool through_mps(const Share& share) {
  return share.mode == SharingMode::mps || share.mode == SharingMode::sm;
}

/// Whether each job has a device of its own, which is part of a GPU.
constexpr bool has_own_device(SharingMode mode) {
  return mode == SharingMode::mig || mode == SharingMode::vgpu;
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
