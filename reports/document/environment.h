// One operating-system instance as its ranks found it, with its GPUs and NICs: evidence, beside it
// what the user claims.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/names.h"
#include "base/value.h"
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

/// The facts of a device on the PCI bus.
struct PciDevice {
  Maybe<std::string> pci_id;
  Maybe<std::string> device_id;    // with that of the maker: 0x233510DE
  Maybe<int64_t> link_generation;  // of PCIe; idle GPUs lower it
  Maybe<int64_t> link_width;
  Maybe<int64_t> largest_link_generation;
  Maybe<int64_t> largest_link_width;
  Maybe<int64_t> numa_node;
  Maybe<int64_t> iommu_group;
  Maybe<std::string> iommu_type;  // identity, DMA, DMA-FQ
  Maybe<bool> virtual_function;   // of SR-IOV
  Maybe<bool> ats_capable;
  Maybe<bool> ats;           // it keeps translations of the IOMMU
  Maybe<bool> acs_redirect;  // bridges above send peers' traffic to the root complex

  bool operator==(const PciDevice&) const = default;
};

struct RdmaDevice : PciDevice {
  NM_DECLARE_SPECIAL_MEMBERS(RdmaDevice);
  std::string name;                     // mlx5_0
  std::vector<std::string> interfaces;  // its network interfaces, as ibdev2netdev shows them
  Maybe<std::string> model;             // by the list of PCI ids, else as its driver calls it
  Maybe<std::string> board_id;
  Maybe<std::string> firmware;
  Maybe<std::string> driver;
  Maybe<std::string> driver_version;  // of those that tell one, such as OFED's
  Maybe<bool> device_file;            // /dev/infiniband/uverbs..., by which programs use it
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

/// What a machine is, as it is found or as its user says. vgpu, pass_through: of its GPUs, all of
/// them. confidential: by its CPU or a GPU. interposed: a library stands between programs and the
/// driver of its GPUs, as those that limit a share of one do.
enum class MachineKind { vm, bare_metal, container, vgpu, pass_through, confidential, interposed };
constexpr auto names_of(MachineKind) {
  return std::array{"vm",          "bare-metal",   "container", "vgpu",
                    "passthrough", "confidential", "interposed"};
}

/// The signs that tell a virtual machine and a container from bare metal. Each question is asked on
/// its own, since a container may run in a virtual machine; `machine`, `hypervisor` and `container`
/// are conclusions from the rest.
struct Virtualisation {
  NM_DECLARE_SPECIAL_MEMBERS(Virtualisation);
  Maybe<MachineKind> machine;     // vm or bare_metal
  Maybe<std::string> hypervisor;  // kvm, firecracker, vmware, ...; none
  Maybe<std::string> hypervisor_version{};
  Maybe<std::string> container;                          // docker, podman, gvisor, ...; none
  Maybe<std::string> confidential{Unknown{"not told"}};  // sev-snp, tdx: of a guest; none
  Maybe<std::string> interposer{Unknown{"not told"}};  // file before libcuda in this process; none
  Maybe<std::string> cpuid_signature;                  // leaf 0x40000000
  Maybe<std::string> dmi_vendor;                       // of the system
  Maybe<std::string> dmi_product;                      // of the system
  Maybe<std::string> bios_version;
  Maybe<std::string> hypervisor_type;        // /sys/hypervisor/type
  Maybe<std::string> detect_virt_vm;         // answer of systemd-detect-virt --vm
  Maybe<std::string> detect_virt_container;  // the same with --container
  Maybe<std::string> clock_source;
  Maybe<int64_t> iommu_groups;               // 0: no IOMMU is seen from here
  Maybe<std::string> kernel_options;         // those of IOMMU, PCI, huge pages and mitigations
  Maybe<bool> mps_daemon;                    // the control pipe of NVIDIA's multi-process service
  Maybe<bool> peer_memory_module;            // nvidia_peermem: GPUDirect RDMA without DMA-BUF
  Maybe<std::string> nvidia_kernel_module;   // version of the loaded one
  Maybe<std::string> nvidia_kernel_flavour;  // open, proprietary: only the open one has dma-bufs

  bool operator==(const Virtualisation&) const = default;
};

struct Processor {
  Maybe<std::string> vendor;  // by CPUID, which tells apart what a hypervisor gives one name
  Maybe<int64_t> family;
  Maybe<int64_t> model;
  Maybe<int64_t> stepping;
  Maybe<std::string> microcode;
  Maybe<std::string> cache;  // as /proc/cpuinfo has it: "32768 KB"
  Maybe<int64_t> sockets;
  Maybe<int64_t> cores;
  Maybe<int64_t> numa_nodes;
  Maybe<std::string> governor;  // of CPU frequency; distinct ones joined
  Maybe<int64_t> largest_hertz;

  bool operator==(const Processor&) const = default;
};

/// Why a limit has no value, where what sets it was read.
inline constexpr const char* no_limit = "no limit is set";

struct Limits {
  Maybe<int64_t> locked_memory_bytes;
  Maybe<int64_t> open_files;
  Maybe<int64_t> shared_memory_bytes;  // size of /dev/shm
  Maybe<int64_t> huge_pages;           // reserved
  Maybe<int64_t> huge_page_bytes;
  Maybe<std::string> transparent_huge_pages;
  Maybe<bool> numa_balancing;  // pages move to the node that uses them
  // process_vm_readv is allowed, by which MPI moves large messages within a host in one copy.
  Maybe<bool> cross_memory_attach{Unknown{"not told"}};

  bool operator==(const Limits&) const = default;
};

/// The file system of the working folder.
struct Storage {
  Maybe<std::string> file_system;  // ext4, nfs4, overlay, ...
  Maybe<std::string> device;       // what is mounted: /dev/nvme0n1p2, nas:/export, ...
  Maybe<int64_t> free_bytes;

  /// What happens to be free makes no other machine.
  bool operator==(const Storage& other) const {
    return file_system == other.file_system && device == other.device;
  }
};

struct NetworkInterface {
  std::string name;
  Maybe<std::string> driver;
  Maybe<std::string> state;
  Maybe<int64_t> bits_per_second;  // less where tc limits what leaves by it
  Maybe<int64_t> mtu_bytes;
  Maybe<int64_t> numa_node;
  Maybe<std::string> rdma_device;
  Maybe<bool> virtual_function;

  bool operator==(const NetworkInterface&) const = default;
};

struct GpuPeer {
  std::string pci_id;
  Maybe<bool> reads;
  Maybe<bool> atomics;
  Maybe<bool> nvlink;
  Maybe<PciDistance> distance{};  // by PCIe, whether or not there is an NVLink

  bool operator==(const GpuPeer&) const = default;
};

struct MigInstance {
  Maybe<std::string> uuid;
  Maybe<std::string> profile;      // 1g.18gb
  Maybe<int64_t> multiprocessors;  // equal profiles may have different numbers
  Maybe<int64_t> gpu_slices;
  Maybe<int64_t> memory_bytes;

  bool operator==(const MigInstance&) const = default;
};

/// Values of nvml.h's nvmlReturn_t that have a remedy.
enum NvmlStatus {
  nvml_no_permission = 4,
  nvml_driver_not_loaded = 9,
  nvml_not_found = 12,  // the library
  nvml_gpu_is_lost = 15,
  nvml_versions_differ = 18,  // of the library and of the kernel's module
  nvml_unknown_error = 999,
};

struct Gpu : PciDevice {
  NM_DECLARE_SPECIAL_MEMBERS(Gpu);
  std::string name;
  std::optional<std::string> lost;  // why the driver does not reach it, which no rank runs on
  int lost_status = 0;              // the same, as nvmlReturn_t
  Maybe<std::string> uuid;
  Maybe<int64_t> memory_bytes;
  Maybe<int64_t> multiprocessors;
  Maybe<std::string> compute_capability;
  Maybe<std::string> driver_version;
  Maybe<bool> dma_buf;  // its memory can be shared with NICs as a dma-buf: GPUDirect RDMA
  // By NVML:
  Maybe<std::string> subsystem_id;  // of its board, as device_id: 0x18BE10DE
  Maybe<std::string> serial;
  Maybe<std::string> vbios;
  Maybe<std::string> virtualisation;  // none, passthrough, vgpu, host-vgpu, host-vsga
  Maybe<std::string> vgpu_profile;    // A100-40C, of one that is a vGPU
  Maybe<std::string> vgpu_licence;    // licensed, unlicensed
  Maybe<std::string> vgpu_scheduler;  // best effort, equal share, fixed share
  Maybe<std::string> confidential{Unknown{"not told"}};  // off, on, devtools: with debugging
  Maybe<int64_t> bar1_bytes;
  Maybe<bool> ecc;
  Maybe<bool> ecc_change_pending;
  Maybe<bool> memory_repair_pending;  // retired pages or remapped rows that wait for a reset
  Maybe<bool> persistence;
  Maybe<std::string> compute_mode;
  Maybe<double> power_limit_watts;
  Maybe<double> default_power_limit_watts;
  Maybe<int64_t> largest_sm_hertz;
  Maybe<int64_t> largest_memory_hertz;
  Maybe<int64_t> application_sm_hertz;  // the limit that an administrator set
  Maybe<bool> mig;
  Maybe<bool> mig_change_pending;
  Maybe<std::string> mig_profile;  // of the MIG device that this is; its UUID is `uuid`
  std::vector<MigInstance> mig_instances;
  Maybe<int64_t> active_nvlinks;
  Maybe<int64_t> inactive_nvlinks;
  std::vector<GpuPeer> peers;
  // By the kernel:
  Maybe<std::string> cpu_affinity;     // CPUs next to it
  Maybe<int64_t> own_link_generation;  // the GPU's capability, whatever its slot is
  std::vector<NicPath> nics;           // to each RDMA device of the host

  bool operator==(const Gpu&) const = default;
};

/// Stands for a name that reports were asked to leave out.
inline constexpr const char* left_out_name = "(left out)";

/// Variables by which mpirun tells its processes of this launch: others with each, and made of the
/// host's name, its addresses and the number of a process.
inline constexpr std::array variables_of_a_launch = {"OMPI_MCA_ess_base_jobid",
                                                     "OMPI_MCA_ess_base_vpid",
                                                     "OMPI_MCA_orte_ess_node_rank",
                                                     "OMPI_MCA_orte_hnp_uri",
                                                     "OMPI_MCA_orte_local_daemon_uri",
                                                     "OMPI_MCA_orte_parent_uri",
                                                     "OMPI_MCA_orte_jobfam_session_dir",
                                                     "OMPI_MCA_orte_top_session_dir",
                                                     "OMPI_MCA_orte_precondition_transports",
                                                     "OMPI_MCA_orte_tmpdir_base",
                                                     "OMPI_MCA_btl_sm_backing_directory",
                                                     "OMPI_MCA_btl_vader_backing_directory"};

struct Environment {
  NM_DECLARE_SPECIAL_MEMBERS(Environment);
  std::string host_name;
  Maybe<std::string> boot_id;     // another one whenever the kernel starts
  Maybe<std::string> machine_id;  // of the installation, as a hash
  std::string kernel;
  Maybe<std::string> distribution;
  std::string architecture;
  Maybe<std::string> cpu_model;
  int64_t logical_cpus = 1;  // online
  int64_t usable_cpus = 1;   // by this process: affinity mask
  Maybe<double> cpu_quota;   // of the control group, in CPUs
  Maybe<int64_t> memory_bytes;
  Maybe<int64_t> memory_limit_bytes;  // of the control group
  Maybe<bool> hypervisor_cpu_flag;    // CPUID leaf 1: ECX bit 31
  std::optional<MachineKind> claim;   // --environment
  Virtualisation virtualisation;
  Processor processor;
  Limits limits;
  Storage storage;
  std::vector<NetworkInterface> network;
  std::vector<RdmaDevice> rdma;
  Maybe<std::string> nccl_topology_file;          // the one that NCCL would read
  std::vector<Gpu> gpus;                          // those used
  std::map<std::string, std::string> libraries;   // name to version, as loaded
  std::map<std::string, std::string> variables;   // environment variables by allow-list
  std::map<std::string, std::string> host_facts;  // what the host's operator says of it
  // Whether each is set, but not to what; null: not told.
  bool ld_preload = false;
  std::optional<bool> ld_library_path{}, ld_audit{};

  bool operator==(const Environment&) const = default;
};

/// Whether it is, as far as it shows.
Maybe<bool> shows(MachineKind kind, const Environment& environment);

/// The same text for environments of one operating system, another for those of two: by what its
/// kernel drew when it started; where that is not known, by its installation and its names.
std::string operating_system_of(const Environment& environment);

/// Threads that are worth having there, by the affinity mask and the quota of the control group.
int64_t usable_threads(const Environment& environment);

/// "AuthenticAMD 25 17 1": vendor, family, model and stepping; unknown where one of them is.
Maybe<std::string> cpu_id_of(const Environment& environment);

}  // namespace nearmetal
