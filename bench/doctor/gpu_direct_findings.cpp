#include <algorithm>

#include "bench/doctor/advice.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

constexpr const char* slow_way =
    "what GPUs send to other hosts is copied through this host's memory (NET/IB without GDRDMA in "
    "NCCL's log), though tests between the hosts' memories, such as ib_write_bw, are fast";

const RdmaDevice* nic_of(const Checkup& checkup, const NicPath& path) {
  const std::vector<RdmaDevice>& nics = checkup.environment.rdma;
  const auto found = std::ranges::find(nics, path.rdma_device, &RdmaDevice::name);
  return found == nics.end() || !found->pci_id ? nullptr : &*found;
}

std::vector<std::string> names_where(const Checkup& checkup, bool (*wanted)(const RdmaDevice&)) {
  std::vector<std::string> names;
  for (const RdmaDevice& nic : checkup.environment.rdma) {
    if (nic.pci_id && wanted(nic)) names.push_back(nic.name);
  }
  return names;
}

void add_gpu_direct_off(const Checkup& checkup, std::vector<Finding>& findings) {
  std::vector<std::string> names;
  for (const Gpu& gpu : checkup.gpus) {
    for (const NicPath& path : gpu.nics) {
      const bool off = path.gpu_direct_rdma && *path.gpu_direct_rdma == GpuDirectRdma::none;
      const bool is_new = std::ranges::find(names, path.rdma_device) == names.end();
      if (off && is_new && nic_of(checkup, path) != nullptr) names.push_back(path.rdma_device);
    }
  }
  if (names.empty()) return;
  const Maybe<std::string>& flavour = checkup.environment.virtualisation.nvidia_kernel_flavour;
  const std::string load =
      "modprobe nvidia_peermem (on the host, where this is a container), or install the driver's "
      "open kernel modules on Linux 5.12 or later, which share GPUs' memory as dma-bufs";
  findings.push_back(
      {Urgency::warning, "gpu_direct_off",
       "GPUDirect RDMA is off for " + joined(names) + ": nvidia_peermem is not loaded, and " +
           (flavour ? "the driver's " + *flavour + " kernel module has" : "the driver reports") +
           " no dma-bufs",
       slow_way,
       advice_for(checkup, {"in the VM: " + load,
                            "in the VM: " + load +
                                "; the VM's configuration needs pciPassthru.allowP2P = TRUE and "
                                "pciPassthru.RelaxACSforP2P = TRUE",
                            load})});
}

constexpr const char* why_ats =
    "in a VM all that a NIC reads from a GPU goes up to the IOMMU and back down, unless the NIC "
    "keeps the IOMMU's translations (ATS)";

constexpr const char* set_in_firmware =
    "mlxconfig -d DEVICE set ATS_ENABLED=true, then restart the host (starting the VM anew is not "
    "enough)";

// NICs of clouds that are no ConnectX reach GPUs without ATS of their own.
bool is_mlx5(const RdmaDevice& nic) { return nic.driver && *nic.driver == "mlx5_core"; }

std::vector<std::string> gpus_without_ats(const std::vector<Gpu>& gpus) {
  std::vector<std::string> names;
  for (size_t i = 0; i < gpus.size(); ++i) {
    const bool off = gpus[i].ats && !*gpus[i].ats;
    if (off && gpus[i].ats_capable && *gpus[i].ats_capable) {
      names.push_back("GPU " + std::to_string(i));
    }
  }
  return names;
}

void add_ats(const Checkup& checkup, std::vector<Finding>& findings) {
  if (!is_vm(checkup) || checkup.gpus.empty()) return;
  const auto off = names_where(checkup, [](const RdmaDevice& nic) {
    return nic.ats && !*nic.ats && nic.ats_capable && *nic.ats_capable;
  });
  const std::string firmware = std::string("on the host: ") + set_in_firmware;
  const std::string of_esxi = "esxcli system settings kernel set -s atsSupport -v TRUE";
  const Advice of_host = {
      "on the host: switch IOMMU and ATS on in the BIOS, and start Linux with its IOMMU and "
      "without pci=noats",
      "on the host: " + of_esxi, ""};
  if (!off.empty()) {
    const std::string in_nic = std::string("; in the NIC: ") + set_in_firmware;
    findings.push_back({Urgency::warning, "ats_off",
                        "ATS is off at " + joined(off) + ", though capable of it", why_ats,
                        advice_for(checkup, {of_host.kvm + in_nic, of_host.esxi + in_nic, ""})});
  }
  const auto gpus = gpus_without_ats(checkup.gpus);
  if (!gpus.empty()) {
    findings.push_back({Urgency::warning, "ats_off",
                        "ATS is off at " + shortened(joined(gpus)) + ", though capable of it",
                        "in a VM what a GPU sends to a NIC or to another GPU by PCIe goes up to "
                        "the IOMMU and back down, unless the GPU keeps the IOMMU's translations",
                        advice_for(checkup, of_host)});
  }
  const auto absent = names_where(checkup, [](const RdmaDevice& nic) {
    return is_mlx5(nic) && nic.ats_capable && !*nic.ats_capable;
  });
  if (!absent.empty()) {
    findings.push_back(
        {Urgency::warning, "ats_off",
         "no ATS is seen at " + joined(absent) +
             ": it is off in the firmware, as it is by default, or the hypervisor hides it",
         why_ats, advice_for(checkup, {firmware, firmware + "; and in ESXi: " + of_esxi, ""})});
  }
  const auto unknown =
      names_where(checkup, [](const RdmaDevice& nic) { return is_mlx5(nic) && !nic.ats; });
  if (unknown.empty()) return;
  findings.push_back({Urgency::note, "ats_unknown",
                      "ATS at " + joined(unknown) + " is not readable without root", why_ats,
                      as_root});
}

bool is_true(const Maybe<bool>& value) { return value && *value; }

// GPUs and NICs with nothing but switches between them, where the IOMMU is asked of each transfer.
std::vector<std::string> pairs_where(const Checkup& checkup,
                                     bool (*wanted)(const Gpu&, const RdmaDevice&)) {
  std::vector<std::string> pairs;
  for (size_t i = 0; i < checkup.gpus.size(); ++i) {
    const Gpu& gpu = checkup.gpus[i];
    for (const NicPath& path : gpu.nics) {
      const RdmaDevice* nic = nic_of(checkup, path);
      if (nic == nullptr || !at_most_switches(path.distance) || is_true(nic->ats)) continue;
      if (wanted(gpu, *nic)) pairs.push_back("GPU " + std::to_string(i) + " and " + nic->name);
    }
  }
  return pairs;
}

bool is_redirected(const Gpu& gpu, const RdmaDevice& nic) {
  return is_true(nic.acs_redirect) || is_true(gpu.acs_redirect);
}

void add_acs(const Checkup& checkup, std::vector<Finding>& findings) {
  const auto redirected = pairs_where(checkup, is_redirected);
  if (!redirected.empty()) {
    findings.push_back(
        {Urgency::warning, "acs_redirect_nic",
         "bridges between " + shortened(joined(redirected)) +
             " redirect what peers send one another (PCIe ACS)",
         "it goes up to the root complex and back instead of through the switch that they share",
         advice_on_acs(checkup)});
  }
  const auto unknown = pairs_where(checkup, [](const Gpu& gpu, const RdmaDevice& nic) {
    return !is_redirected(gpu, nic) && (!nic.acs_redirect || !gpu.acs_redirect);
  });
  if (!unknown.empty()) findings.push_back(acs_unknown("between " + shortened(joined(unknown))));
}

// The nearest of those whose distance is known; null: none.
const NicPath* nearest_nic(const Checkup& checkup, const Gpu& gpu) {
  const NicPath* nearest = nullptr;
  for (const NicPath& path : gpu.nics) {
    if (!path.distance || nic_of(checkup, path) == nullptr) continue;
    if (nearest == nullptr || *path.distance < *nearest->distance) nearest = &path;
  }
  return nearest;
}

// GPUs whose nearest NIC is that far.
std::vector<std::string> gpus_at(const Checkup& checkup, PciDistance least, PciDistance most) {
  std::vector<std::string> gpus;
  for (size_t i = 0; i < checkup.gpus.size(); ++i) {
    const NicPath* path = nearest_nic(checkup, checkup.gpus[i]);
    if (path == nullptr || *path->distance < least || *path->distance > most) continue;
    gpus.push_back("GPU " + std::to_string(i) + " (" + path->rdma_device + ": " +
                   to_string(*path->distance) + ")");
  }
  return gpus;
}

// Also where a guest does not tell so much as the NUMA nodes of its devices.
std::vector<std::string> gpus_without_switch(const Checkup& checkup) {
  std::vector<std::string> gpus = gpus_at(checkup, PciDistance::phb, PciDistance::sys);
  for (size_t i = 0; i < checkup.gpus.size(); ++i) {
    const Gpu& gpu = checkup.gpus[i];
    const auto is_nic = [&](const NicPath& path) { return nic_of(checkup, path) != nullptr; };
    if (nearest_nic(checkup, gpu) != nullptr || !std::ranges::any_of(gpu.nics, is_nic)) continue;
    gpus.push_back("GPU " + std::to_string(i) + " (at no known distance)");
  }
  return gpus;
}

// A guest whose tree shows no switch between GPU and NIC, and none is told to NCCL.
void add_topology(const Checkup& checkup, std::vector<Finding>& findings) {
  if (!is_vm(checkup) || checkup.environment.nccl_topology_file) return;
  const auto gpus = gpus_without_switch(checkup);
  if (gpus.empty()) return;
  const std::string file =
      "let NCCL write the host's tree on bare metal (NCCL_TOPO_DUMP_FILE), change the addresses of "
      "GPUs and NICs to those in the VM (lspci), and name that file in NCCL_TOPO_FILE on all ranks "
      "(clouds have one ready; a network plugin such as aws-ofi-nccl brings its own)";
  findings.push_back(
      {Urgency::warning, "no_topology_file",
       "the VM shows no PCIe switch between its GPUs and NICs, and NCCL has no topology file: " +
           checkup.environment.nccl_topology_file.reason,
       "NCCL takes GPUDirect RDMA only where it sees nothing but switches between GPU and NIC "
       "(PIX, PXB), and chooses NICs by distance: " +
           shortened(joined(gpus)),
       advice_for(checkup,
                  {file + "; or show the VM the host's tree: a pxb-pcie for each NUMA node, "
                          "with an x3130-upstream switch for each group of GPUs and NICs",
                   file + "; or pass GPUs and NICs as a device group (vSphere 8 or later)", ""})});
}

void add_far(const Checkup& checkup, std::vector<Finding>& findings) {
  const bool told = checkup.environment.nccl_topology_file ||
                    checkup.environment.variables.contains("NCCL_NET_GDR_LEVEL");
  const std::string place =
      "move the NIC to a slot of the GPU's socket, best below the same PCIe switch; until then "
      "take "
      "GPUs near the NIC where there are more (CUDA_VISIBLE_DEVICES)";
  const std::string near = "give the VM a NIC of the GPU's NUMA node";
  const auto across = gpus_at(checkup, PciDistance::sys, PciDistance::sys);
  if (!across.empty() && !told) {
    findings.push_back(
        {Urgency::warning, "nic_far_from_gpu",
         "the nearest NIC is at another socket: " + shortened(joined(across)),
         "all traffic to other hosts crosses the link between the sockets, and NCCL does not "
         "take GPUDirect RDMA over it",
         advice_for(checkup,
                    {near + ", and show it both nodes: a pxb-pcie with numa_node= for each",
                     near + " (esxcli hardware pci list tells it), best both as a device group "
                            "(vSphere 8 or later)",
                     place})});
  }
  const auto beyond = gpus_at(checkup, PciDistance::phb, PciDistance::node);
  if (beyond.empty() || told || is_vm(checkup)) return;
  findings.push_back({Urgency::note, "nic_beyond_switch",
                      "no PCIe switch joins GPU and NIC: " + shortened(joined(beyond)),
                      "NCCL takes GPUDirect RDMA by itself only where nothing but switches is "
                      "between them (PIX, PXB)",
                      "try NCCL_NET_GDR_LEVEL=SYS, and measure with and without; or " + place});
}

}  // namespace

void add_gpu_direct_findings(const Checkup& checkup, std::vector<Finding>& findings) {
  add_gpu_direct_off(checkup, findings);
  add_ats(checkup, findings);
  add_acs(checkup, findings);
  add_topology(checkup, findings);
  add_far(checkup, findings);
}

}  // namespace nearmetal
