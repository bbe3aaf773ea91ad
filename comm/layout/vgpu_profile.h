// The names of vGPUs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace nearmetal {

/// What the name of a vGPU says: BOARD-40C has 40 GB of the board and takes turns with others on
/// the whole of it; BOARD-3-20C is an instance of MIG with 3 slices; ME: with media extensions.
/// Source: NVIDIA vGPU software documentation, "Virtual GPU Types for Supported GPUs" (A100-40C,
/// A100-3-20C, A100-1-5CME). There is no table of boards here: what a board has is its host's.
struct VgpuProfile {
  std::string board;                // A100, H100XM
  std::optional<int64_t> slices{};  // of MIG; none: time slices of the whole board
  int64_t gigabytes = 0;
  char series = 'C';  // C for computing; Q, B and A for graphics
  bool media = false;

  bool operator==(const VgpuProfile&) const = default;
};

/// None: the text is no such name.
std::optional<VgpuProfile> parse_vgpu_profile(const std::string& text);

/// Of a device as its driver names it in the guest ("GRID A100-40C", "NVIDIA A100-40C"); empty: the
/// name holds none.
std::string vgpu_profile_in(const std::string& device_name);

/// How the vGPUs of the board are kept apart: "time slices", "MIG, 3 slices".
std::string partition_text(const VgpuProfile& profile);

}  // namespace nearmetal
