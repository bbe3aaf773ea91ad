// The ranks that may not read one another's memory, by what NVIDIA publishes of vGPUs and MIG.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/layout/placement.h"
#include "reports/document/warning.h"

namespace nearmetal {

/// The device that a rank computes on, as far as the layout or the driver reports it.
struct PeerDevice {
  std::string host;
  std::string node{};                         // the machine below
  std::optional<std::string> vgpu_profile{};  // A100-40C, of a vGPU
  bool mig = false;
  bool without_nvlink = false;  // to another GPU of the job
};

/// Whether a vGPU of this profile has all of its GPU, and is published as a peer of others.
bool is_whole_gpu(const std::string& vgpu_profile);

/// Warnings about ranks that exchange gradients, with what was seen first. `job` begins a sentence.
///
/// Sources: NVIDIA AI Enterprise documentation, "Peer-To-Peer (P2P) CUDA Transfers": time-sliced
/// vGPUs for computing that have all memory of a GPU with NVLink, in one VM, not over PCIe, none
/// that MIG backs. MIG User Guide, "Application Considerations": no peers among MIG devices.
std::vector<Finding> peer_findings(const std::string& job, const std::vector<PeerDevice>& ranks);

/// The same for all jobs that train on several GPUs. What a GPU is comes from its job's share, else
/// from its name in `hosts`, where the driver was asked.
std::vector<Finding> peer_findings(const std::vector<Placement>& placements,
                                   const std::vector<Host>& hosts);

}  // namespace nearmetal
