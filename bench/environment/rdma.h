// NICs with RDMA, and the ways from GPUs to them, as the kernel shows them.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "reports/document/environment.h"
#include "reports/document/warning.h"

namespace nearmetal {

/// The devices of /sys/class/infiniband, sorted by name; at most 64.
std::vector<RdmaDevice> find_rdma(const std::filesystem::path& root);

/// For UCX_NET_DEVICES: the interfaces that are named, or all but them, and the active ports of
/// RDMA that belong to such, as "mlx5_0:1".
std::vector<std::string> ucx_devices(const std::set<std::string>& interfaces,
                                     const std::set<std::string>& named, bool left_out,
                                     const std::vector<RdmaDevice>& rdma);

/// The paths from the GPU at `gpu.pci_id`, whose `dma_buf` is known, to each of them.
std::vector<NicPath> nic_paths(const Gpu& gpu, const std::filesystem::path& root);

/// The traffic of each port until now, since its counters were last set to 0.
std::vector<RdmaTraffic> rdma_counters(const std::filesystem::path& root);

/// The traffic since `before`.
std::vector<RdmaTraffic> traffic_since(const std::vector<RdmaTraffic>& before,
                                       std::vector<RdmaTraffic> now);

}  // namespace nearmetal
