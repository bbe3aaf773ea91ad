// NICs that can read and write memory by themselves (RDMA), and how far GPUs are from them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "models/names.h"
#include "reports/document/maybe.h"
#include "reports/document/special_members.h"

namespace nearmetal {

/// The way between two devices, in the words of `nvidia-smi topo -m`. pix: at most one PCIe switch.
/// pxb: several. phb: a PCIe host bridge, usually of a CPU. node: the way between the host bridges
/// of one NUMA node. sys: that between NUMA nodes.
enum class PciDistance { pix, pxb, phb, node, sys };
constexpr auto names_of(PciDistance) { return std::array{"PIX", "PXB", "PHB", "NODE", "SYS"}; }

/// The means by which a NIC may read and write the memory of a GPU.
enum class GpuDirectRdma { none, dma_buf, peer_memory };
constexpr auto names_of(GpuDirectRdma) { return std::array{"none", "dma-buf", "nvidia_peermem"}; }

/// Rate of a lane, by generation from the first, in 1e9 transfers a second.
inline constexpr std::array pcie_gigatransfers = {2.5, 5., 8., 16., 32., 64.};

inline constexpr size_t most_listed_gids = 16;  // of a port

struct RdmaGid {
  int64_t index = 0;
  Maybe<std::string> gid;
  Maybe<std::string> type;       // IB/RoCE v1, RoCE v2
  Maybe<std::string> interface;  // network interface

  bool operator==(const RdmaGid&) const = default;
};

struct RdmaPort {
  int64_t number = 1;
  Maybe<std::string> state;           // active, down, init, armed
  Maybe<std::string> physical_state;  // linkup, disabled, polling
  Maybe<std::string> link_layer;      // InfiniBand; Ethernet: RoCE
  Maybe<int64_t> bits_per_second;
  std::vector<RdmaGid> gids;  // those set

  bool operator==(const RdmaPort&) const = default;
};

struct RdmaDevice {
  NM_DECLARE_SPECIAL_MEMBERS(RdmaDevice);
  std::string name;                     // mlx5_0
  std::vector<std::string> interfaces;  // its network interfaces, as ibdev2netdev shows them
  Maybe<std::string> pci_id;
  Maybe<std::string> device_id;  // on the PCI bus, with that of the maker, as of GPUs
  Maybe<std::string> model;      // by the list of PCI ids, else as its driver calls it
  Maybe<std::string> board_id;
  Maybe<std::string> firmware;
  Maybe<std::string> driver;
  Maybe<std::string> driver_version;  // of those that tell one, such as OFED's
  Maybe<bool> device_file;            // /dev/infiniband/uverbs..., by which programs use it
  Maybe<int64_t> numa_node;
  Maybe<int64_t> link_generation;  // of PCIe
  Maybe<int64_t> link_width;
  Maybe<int64_t> largest_link_generation;
  Maybe<int64_t> largest_link_width;
  Maybe<int64_t> iommu_group;
  Maybe<std::string> iommu_type;  // identity, DMA, DMA-FQ
  Maybe<bool> virtual_function;   // of SR-IOV
  Maybe<bool> ats_capable;
  Maybe<bool> ats;           // on
  Maybe<bool> acs_redirect;  // bridges above send peers' traffic to the root complex
  std::vector<RdmaPort> ports;

  bool operator==(const RdmaDevice&) const = default;
};

/// The path from a GPU to a NIC of its host.
struct NicPath {
  std::string rdma_device;
  Maybe<PciDistance> distance;
  Maybe<GpuDirectRdma> gpu_direct_rdma;  // none: data go through the host's memory

  bool operator==(const NicPath&) const = default;
};

/// The traffic of a port while a window was timed, of all processes.
struct RdmaTraffic {
  std::string rdma_device;
  int64_t port = 1;
  Maybe<int64_t> sent_bytes;
  Maybe<int64_t> received_bytes;
  Maybe<int64_t> errors;  // of the link and of packets: lost, repeated or out of order

  bool operator==(const RdmaTraffic&) const = default;
};

}  // namespace nearmetal
