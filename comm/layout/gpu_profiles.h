// The ways in which GPUs are cut into parts, by MIG and as vGPUs: names, and how many fit.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace nearmetal {

/// A kind of GPU instance, as `nvidia-smi mig -lgip` lists them. Slices are the units of which a
/// board has 7 for computing (an A30 4) and 8 for memory (an A30 4).
struct MigProfile {
  const char* name;  // "1g.18gb": compute slices, and memory in GB
  int64_t most;      // at once on one GPU
  int64_t compute_slices;
  int64_t memory_slices;
};

/// "1g.18gb", "1g.18gb+me", "1c.3g.71gb": the names of MIG devices.
bool is_mig_profile(const std::string& text);

/// "MIG-" and a UUID, as drivers from 470 on name MIG devices.
bool is_mig_uuid(const std::string& text);

/// The part of a device's name that says its profile: "NVIDIA H200 MIG 1g.18gb" has 1g.18gb; none:
/// it is no MIG device. NVML and CUDA name MIG devices so (nvmlDeviceGetName: "When used with MIG
/// device handles the API returns MIG device names").
std::optional<std::string> mig_profile_in(const std::string& device_name);

/// The profiles of a board, by the name of its GPU, smallest first; empty: this program does not
/// know it.
std::span<const MigProfile> mig_profiles_of(const std::string& gpu_name);

/// Why a GPU of this name cannot have the profile, with those that it has; none: it has it, or the
/// board is not known.
std::optional<std::string> no_such_profile(const std::string& profile, const std::string& gpu_name);

/// The largest profile of which `count` fit on a GPU of this name; null: none, or it is not known.
const MigProfile* largest_equal_profile(const std::string& gpu_name, int64_t count);

/// The meaning of the name of a vGPU: BOARD-40C has 40 GB of the board and takes turns with others
/// on the whole of it; BOARD-3-20C is an instance of MIG with 3 slices; ME: with media extensions.
/// Source: NVIDIA vGPU software documentation, "Virtual GPU Types for Supported GPUs" (A100-40C,
/// A100-3-20C, A100-1-5CME; C for computing, Q, B and A for graphics). There is no table of boards
/// here: what a board has is its host's.
struct VgpuProfile {
  std::string board;                // A100, H100XM
  std::optional<int64_t> slices{};  // of MIG; none: time slices of the whole board

  bool operator==(const VgpuProfile&) const = default;
};

/// None: the text is no such name.
std::optional<VgpuProfile> parse_vgpu_profile(const std::string& text);

/// The profile of a device, as its driver names it in the guest ("GRID A100-40C", "NVIDIA
/// A100-40C"), if it holds one.
std::optional<std::string> vgpu_profile_in(const std::string& device_name);

}  // namespace nearmetal
