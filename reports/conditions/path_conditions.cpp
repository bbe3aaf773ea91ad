#include "reports/conditions/path_conditions.h"

#include <algorithm>

#include "base/text.h"
#include "reports/conditions/network_conditions.h"

namespace nearmetal {
namespace {

using DeviceNames = std::vector<std::string>;

std::string gpu_name(size_t index) { return "GPU " + std::to_string(index); }

// Where the configuration of PCI devices ends after 64 bytes.
constexpr const char* as_root =
    "run doctor as root, in a container with CAP_SYS_ADMIN as well (docker: --cap-add=SYS_ADMIN)";

// Nothing but switches is between two devices, so that their traffic need not pass a host bridge.
bool at_most_switches(const Maybe<PciDistance>& distance) {
  return distance && *distance <= PciDistance::pxb;
}

Advice advice_on_acs() {
  const std::string translated =
      "leave ACS on, which keeps guests apart; turn on ATS at the NICs (mlxconfig -d DEVICE set "
      "ATS_ENABLED=true) and direct translated P2P (DirectTrans+ in lspci -vvv) at the bridges "
      "above GPUs and NICs";
  return {"on the host: " + translated,
          "pciPassthru.RelaxACSforP2P = TRUE in the VM's configuration; on the host: " + translated,
          "switch ACS off in the BIOS, or at each start for the bridges above GPUs and NICs: "
          "setpci -s BRIDGE ECAP_ACS+0x6.w=0000; where this machine is to have guests: " +
              translated};
}

Condition unknown_acs(Signs (*here)(const Environment&)) {
  return of_machine(
      "acs_unknown", here,
      "redirected traffic goes up to the root complex and back, not through the switch", {as_root},
      Urgency::note);
}

Signs unknown_acs_signs(const std::string& where, const DeviceNames& names) {
  return signs_naming(
      names, "PCIe ACS of the bridges " + where,
      " is not readable without root: they may redirect what peers send one another");
}

struct PeerPaths {
  int64_t all = 0, refused = 0, without_nvlink = 0;

  std::string some(int64_t number) const {
    return std::to_string(number) + " of " + std::to_string(all) + " paths between GPUs";
  }
};

PeerPaths paths_of(const Environment& machine) {
  PeerPaths paths;
  for (const Gpu& gpu : machine.gpus) {
    for (const GpuPeer& peer : gpu.peers) {
      ++paths.all;
      if (peer.reads.value == false) ++paths.refused;
      if (peer.nvlink.value == false) ++paths.without_nvlink;
    }
  }
  return paths;
}

Signs refused_peers(const Environment& machine) {
  const PeerPaths paths = paths_of(machine);
  if (paths.refused == 0) return {};
  return {{"no peer access on " + paths.some(paths.refused)}};
}

bool lacks_nvlinks(const Environment& machine) { return paths_of(machine).without_nvlink > 0; }

Signs peers_without_nvlink(const Environment& machine) {
  const PeerPaths paths = paths_of(machine);
  if (paths.refused > 0 || paths.without_nvlink == 0) return {};  // refused: another finding
  return {{"no NVLink on " + paths.some(paths.without_nvlink)}};
}

bool is_redirected(const Gpu& gpu) { return gpu.acs_redirect.value == true; }

Signs redirected_peers(const Environment& machine) {
  const PeerPaths paths = paths_of(machine);
  if (paths.refused + paths.without_nvlink == 0) return {};
  if (std::ranges::none_of(machine.gpus, is_redirected)) return {};
  return {{"bridges above the GPUs redirect what peers send one another (PCIe ACS)"}};
}

// GPUs that reach another through switches, not by NVLink, and whose bridges do not tell of ACS.
Signs peers_of_unknown_acs(const Environment& machine) {
  DeviceNames names;
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    const Gpu& gpu = machine.gpus[i];
    const bool by_switches = std::ranges::any_of(gpu.peers, [](const GpuPeer& peer) {
      return peer.nvlink.value == false && at_most_switches(peer.distance);
    });
    if (is_redirected(gpu)) return {};  // another finding
    if (by_switches && !gpu.acs_redirect) names.push_back(gpu_name(i));
  }
  return unknown_acs_signs("above ", names);
}

const std::string domain = "pass all GPUs of an NVLink domain through together";
const std::string board =
    "pass all GPUs of the board and its NVSwitches through to one VM; or, where the host keeps the "
    "NVSwitches, have its nvidia-fabricmanager activate the partition of these GPUs";
const std::string bridge =
    "look at nvidia-smi nvlink -s, at the bridge's seat, and on a board with NVSwitches at "
    "nvidia-fabricmanager";
const std::string same_vm =
    "nothing to do where nothing bridges the GPUs; where NVLinks do on the host (nvidia-smi topo "
    "-m there), pass all GPUs of a bridge through to one VM";

Signs confidential_gpus(const Environment& machine) {
  Signs signs;
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    const std::string mode = machine.gpus[i].confidential.value.value_or("off");
    if (mode == "off") continue;
    signs.push_back(
        {.seen = "GPU " + std::to_string(i) + ": confidential computing: " + mode, .gpu = i});
  }
  return signs;
}

Signs interposed(const Environment& machine) {
  const std::string file = machine.virtualisation.interposer.value.value_or("none");
  if (file == "none") return {};
  return {{.seen = file + " stands between programs and libcuda"}};
}

const Conditions of_peers = {
    of_both({"gpu_confidential"}, {{Layer::input, Layer::communication, Layer::launch}},
            confidential_gpus, {},
            "what goes between the host and this GPU is encrypted, and copied once more",
            {"compare a run with it off, if what it costs is the question"}, Urgency::note),
    of_both({"gpu_interposed"}, {{Layer::launch, Layer::compute}}, interposed, {},
            "it may limit the GPU, and sees each call that a program makes",
            {"compare a run without it, if what it costs is the question"}, Urgency::note),
    of_machine("acs_redirect", redirected_peers,
               "without NVLink it takes the way through the root complex, if it arrives",
               advice_on_acs()),
    unknown_acs(peers_of_unknown_acs),
    of_both(
        {"peer_access_refused", "p2p_refused"}, exchange, refused_peers, {},
        "their exchange goes through the host's memory, at a fraction of the speed",
        {domain + "; by PCIe: x-nv-gpudirect-clique=0 of QEMU's vfio-pci, at GPUs below one switch",
         domain + "; by PCIe: pciPassthru.allowP2P = TRUE and pciPassthru.RelaxACSforP2P = TRUE in "
                  "the VM's configuration",
         "look at nvidia-smi topo -p2p r, which tells the reason, and at PCIe ACS and the IOMMU "
         "(iommu=pt)"}),
    // Whether GPUs should have some takes more than the facts: doctor knows boards by name.
    of_both({"nvlink_lost", "nvlink_absent"}, exchange, {},
            of_machines("there is no NVLink between GPUs", lacks_nvlinks),
            "PCIe carries their exchange, at a tenth of the rate or less",
            {board,
             board + "; of A100 vGPUs: pciPassthruN.cfg.enable_uvm = 0, as unified memory switches "
                     "NVLink off between them",
             bridge}),
    of_machine("peers_without_nvlink", peers_without_nvlink, "PCIe carries their exchange",
               {same_vm, same_vm + ", best as a device group (vSphere 8 or later)",
                "nothing to do where nothing bridges the GPUs; else " + bridge},
               Urgency::note),
};

// The NIC of a path; null: it is none on the PCI bus.
const RdmaDevice* nic_of(const Environment& machine, const NicPath& path) {
  const RdmaDevice* found = find_in(machine.rdma, path.rdma_device, &RdmaDevice::name);
  return found == nullptr || !found->pci_id ? nullptr : found;
}

DeviceNames nics_where(const Environment& machine, bool (*wanted)(const RdmaDevice&)) {
  DeviceNames names;
  for (const RdmaDevice& nic : machine.rdma) {
    if (nic.pci_id && wanted(nic)) names.push_back(nic.name);
  }
  return names;
}

Signs gpu_direct_off(const Environment& machine) {
  DeviceNames names;
  for (const Gpu& gpu : machine.gpus) {
    for (const NicPath& path : gpu.nics) {
      const bool off = path.gpu_direct_rdma.value == GpuDirectRdma::none;
      if (off && nic_of(machine, path) != nullptr) add_new(names, path.rdma_device);
    }
  }
  const Maybe<std::string>& flavour = machine.virtualisation.nvidia_kernel_flavour;
  return signs_naming(
      names, "GPUDirect RDMA is off for ",
      ": nvidia_peermem is not loaded, and " +
          (flavour ? "the driver's " + *flavour + " kernel module has" : "the driver reports") +
          " no dma-bufs");
}

// Whether some NIC can read and write the memory of every GPU; none where that is not known.
std::optional<bool> nics_read_gpus(const ExplainedSide& side) {
  std::optional<bool> all;
  for (const Environment* machine : side.environments) {
    for (const Gpu& gpu : machine->gpus) {
      std::optional<bool> any;
      for (const NicPath& path : gpu.nics) {
        if (!path.gpu_direct_rdma) continue;
        any = any.value_or(false) || *path.gpu_direct_rdma != GpuDirectRdma::none;
      }
      if (any) all = all.value_or(true) && *any;
    }
  }
  return all;
}

Seen lost_gpu_direct(const ExplainedSide& base, const ExplainedSide& next) {
  if (Seen seen = rdma_by_host(base, next)) return seen;
  if (nics_read_gpus(base) != true || nics_read_gpus(next) != false) return {};
  return "no NIC can read the memory of a GPU (GPUDirect RDMA)";
}

// Of GPUs and NICs that could keep translations of the IOMMU.
DeviceNames with_ats_off(const Environment& machine) {
  DeviceNames off;
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    const Gpu& gpu = machine.gpus[i];
    if (gpu.ats.value == false && gpu.ats_capable.value != false) off.push_back(gpu_name(i));
  }
  for (const RdmaDevice& nic : machine.rdma) {
    if (nic.ats.value == false && nic.ats_capable.value != false) off.push_back(nic.name);
  }
  return off;
}

// NICs of clouds that are no ConnectX reach GPUs without ATS of their own.
bool is_mlx5(const RdmaDevice& nic) { return nic.driver.value == "mlx5_core"; }

DeviceNames without_ats(const Environment& machine) {
  return nics_where(machine, [](const RdmaDevice& nic) {
    return is_mlx5(nic) && nic.ats_capable.value == false;
  });
}

DeviceNames with_unread_ats(const Environment& machine) {
  return nics_where(machine, [](const RdmaDevice& nic) { return is_mlx5(nic) && !nic.ats; });
}

// In a VM an IOMMU is always in the way; bare metal may do without.
Here in_vm_with_gpus(DeviceNames (*names_of)(const Environment&), const char* before,
                     const char* after) {
  return [=](const Environment& machine) {
    const bool counts = is_vm(machine) && !machine.gpus.empty();
    return counts ? signs_naming(names_of(machine), before, after) : Signs{};
  };
}

bool knows_ats(const Environment& machine) {
  return std::ranges::any_of(machine.gpus, [](const Gpu& gpu) { return !!gpu.ats; }) ||
         std::ranges::any_of(machine.rdma, [](const RdmaDevice& nic) { return !!nic.ats; });
}

// Off where it is on at the base, or off in a VM alone.
Seen lost_ats(const ExplainedSide& base, const ExplainedSide& next) {
  bool known = false, off_there = false, vm_there = false;
  for (const Environment* machine : base.environments) {
    known = known || knows_ats(*machine);
    off_there = off_there || !with_ats_off(*machine).empty() || !without_ats(*machine).empty();
    vm_there = vm_there || is_vm(*machine);
  }
  const bool lost = known && !off_there;
  for (const Environment* machine : next.environments) {
    DeviceNames off = with_ats_off(*machine);
    append(off, without_ats(*machine));
    if (off.empty() || !(lost || (is_vm(*machine) && !vm_there))) continue;
    return "address translation (ATS) is off" + std::string(lost ? "" : " in the VM") + ": " +
           joined(off);
  }
  return {};
}

// GPUs and NICs with nothing but switches between them, where the IOMMU is asked of each transfer.
DeviceNames pairs_where(const Environment& machine, bool (*wanted)(const Gpu&, const RdmaDevice&)) {
  DeviceNames pairs;
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    const Gpu& gpu = machine.gpus[i];
    for (const NicPath& path : gpu.nics) {
      const RdmaDevice* nic = nic_of(machine, path);
      if (nic == nullptr || !at_most_switches(path.distance) || nic->ats.value == true) continue;
      if (wanted(gpu, *nic)) pairs.push_back(gpu_name(i) + " and " + nic->name);
    }
  }
  return pairs;
}

bool is_redirected_between(const Gpu& gpu, const RdmaDevice& nic) {
  return nic.acs_redirect.value == true || gpu.acs_redirect.value == true;
}

Signs redirected_pairs(const Environment& machine) {
  return signs_naming(pairs_where(machine, is_redirected_between), "bridges between ",
                      " redirect what peers send one another (PCIe ACS)");
}

Signs pairs_of_unknown_acs(const Environment& machine) {
  return unknown_acs_signs("between ", pairs_where(machine, [](const Gpu& gpu, const auto& nic) {
                             return !is_redirected_between(gpu, nic) &&
                                    (!nic.acs_redirect || !gpu.acs_redirect);
                           }));
}

// The nearest of those whose distance is known; null: none.
const NicPath* nearest_nic(const Environment& machine, const Gpu& gpu) {
  const NicPath* nearest = nullptr;
  for (const NicPath& path : gpu.nics) {
    if (!path.distance || nic_of(machine, path) == nullptr) continue;
    if (nearest == nullptr || *path.distance < *nearest->distance) nearest = &path;
  }
  return nearest;
}

// GPUs whose nearest NIC is that far, or at no known distance.
DeviceNames gpus_at(const Environment& machine, PciDistance least, PciDistance most,
                    bool or_unknown = false) {
  DeviceNames gpus;
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    const Gpu& gpu = machine.gpus[i];
    const auto is_nic = [&](const NicPath& path) { return nic_of(machine, path) != nullptr; };
    const NicPath* nearest = nearest_nic(machine, gpu);
    if (nearest != nullptr && least <= *nearest->distance && *nearest->distance <= most) {
      gpus.push_back(gpu_name(i) + " (" + nearest->rdma_device + ": " +
                     to_string(*nearest->distance) + ")");
    } else if (nearest == nullptr && or_unknown && std::ranges::any_of(gpu.nics, is_nic)) {
      gpus.push_back(gpu_name(i) + " (at no known distance)");
    }
  }
  return gpus;
}

// A guest whose tree shows no switch between GPU and NIC, nor so much as NUMA nodes perhaps, and
// none is told to NCCL.
Signs no_topology_file(const Environment& machine) {
  if (!is_vm(machine) || machine.nccl_topology_file) return {};
  const DeviceNames gpus = gpus_at(machine, PciDistance::phb, PciDistance::sys, true);
  if (gpus.empty()) return {};
  return {{.seen = "the VM shows no PCIe switch between its GPUs and NICs, and NCCL has no "
                   "topology file: " +
                   machine.nccl_topology_file.reason,
           .why = "NCCL takes GPUDirect RDMA only where it sees nothing but switches between GPU "
                  "and NIC (PIX, PXB), and chooses NICs by distance: " +
                  shortened(joined(gpus))}};
}

bool knows_distances(const Environment& machine) {
  return machine.nccl_topology_file || machine.variables.contains("NCCL_NET_GDR_LEVEL");
}

Signs nics_across_sockets(const Environment& machine) {
  if (knows_distances(machine)) return {};
  return signs_naming(gpus_at(machine, PciDistance::sys, PciDistance::sys),
                      "the nearest NIC is at another socket: ");
}

Signs nics_beyond_switches(const Environment& machine) {
  if (knows_distances(machine) || is_vm(machine)) return {};
  return signs_naming(gpus_at(machine, PciDistance::phb, PciDistance::node),
                      "no PCIe switch joins GPU and NIC: ");
}

// The nearness of the GPU that is worst off.
std::optional<double> nearness(const Environment& machine) {
  std::optional<double> least;
  for (const Gpu& gpu : machine.gpus) {
    const NicPath* path = nearest_nic(machine, gpu);
    if (path != nullptr) least = std::min(least.value_or(0), -static_cast<double>(*path->distance));
  }
  return least;
}

std::string distance_text(double nearness) {
  return to_string(static_cast<PciDistance>(-nearness));
}

const std::string peermem =
    "modprobe nvidia_peermem (on the host, where this is a container), or install the driver's "
    "open kernel modules on Linux 5.12 or later, which share GPUs' memory as dma-bufs";
const std::string near = "give the VM a NIC of the GPU's NUMA node";
const std::string place =
    "move the NIC to a slot of the GPU's socket, best below the same PCIe switch; until then take "
    "GPUs near the NIC where there are more (CUDA_VISIBLE_DEVICES)";
const std::string on_linux =
    "on the host: switch IOMMU and ATS on in the BIOS, and start Linux with its IOMMU and without "
    "pci=noats";
const std::string of_esxi = "esxcli system settings kernel set -s atsSupport -v TRUE";
const std::string on_esxi = "on the host: " + of_esxi;
const std::string in_firmware =
    "mlxconfig -d DEVICE set ATS_ENABLED=true, then restart the host (starting the VM anew is not "
    "enough)";
const std::string by_host = "on the host: " + in_firmware;
const std::string in_nic = "; in NICs: " + in_firmware;
const std::string topology_file =
    "let NCCL write the host's tree on bare metal (NCCL_TOPO_DUMP_FILE), change the addresses of "
    "GPUs and NICs to those in the VM (lspci), and name that file in NCCL_TOPO_FILE on all ranks "
    "(clouds have one ready; a network plugin such as aws-ofi-nccl brings its own)";
constexpr const char* why_ats =
    "in a VM what GPUs and NICs send one another by PCIe goes up to the IOMMU and back down, "
    "unless they keep the IOMMU's translations (ATS)";

const Conditions of_gpu_direct = {
    of_both(
        {"gpu_direct_off", "gdr_lost"}, network, gpu_direct_off, lost_gpu_direct,
        "what GPUs send to other hosts is copied through this host's memory (NET/IB without GDRDMA "
        "in NCCL's log), though tests between the hosts' memories, such as ib_write_bw, are fast",
        {"in the VM: " + peermem,
         "in the VM: " + peermem +
             "; the VM's configuration needs pciPassthru.allowP2P = TRUE and "
             "pciPassthru.RelaxACSforP2P = TRUE",
         peermem}),
    of_both({"nic_far_from_gpu", "nic_distance"}, network, nics_across_sockets,
            less("from a GPU to its nearest NIC:", nearness, distance_text),
            "all traffic to other hosts crosses the link between the sockets, and NCCL does not "
            "take GPUDirect RDMA over it",
            {near + ", and show it both nodes: a pxb-pcie with numa_node= for each",
             near + " (esxcli hardware pci list tells it), best both as a device group (vSphere 8 "
                    "or later)",
             place}),
    of_machine("nic_beyond_switch", nics_beyond_switches,
               "NCCL takes GPUDirect RDMA by itself only where nothing but switches is between "
               "them (PIX, PXB)",
               {"try NCCL_NET_GDR_LEVEL=SYS, and measure with and without; or " + place},
               Urgency::note),
    of_both({"ats_off", "ats_lost"}, exchange,
            in_vm_with_gpus(with_ats_off, "ATS is off at ", ", though capable of it"), lost_ats,
            why_ats, {on_linux + in_nic, on_esxi + in_nic, in_firmware}),
    of_machine("ats_off",
               in_vm_with_gpus(without_ats, "no ATS is seen at ",
                               ": it is off in the firmware, as it is by default, or the "
                               "hypervisor hides it"),
               why_ats, {by_host, by_host + "; and in ESXi: " + of_esxi}),
    of_machine("ats_unknown",
               in_vm_with_gpus(with_unread_ats, "ATS at ", " is not readable without root"),
               why_ats, {as_root}, Urgency::note),
    of_machine(
        "acs_redirect_nic", redirected_pairs,
        "it goes up to the root complex and back instead of through the switch that they share",
        advice_on_acs()),
    unknown_acs(pairs_of_unknown_acs),
    of_machine("no_topology_file", no_topology_file, "",
               {topology_file + "; or show the VM the host's tree: a pxb-pcie for each NUMA node, "
                                "with an x3130-upstream switch for each group of GPUs and NICs",
                topology_file + "; or pass GPUs and NICs as a device group (vSphere 8 or later)"}),
};

}  // namespace

const Conditions& peer_conditions() { return of_peers; }
const Conditions& gpu_direct_conditions() { return of_gpu_direct; }

}  // namespace nearmetal
