#include <algorithm>

#include "bench/doctor/advice.h"
#include "comm/layout/gpu_profiles.h"
#include "comm/layout/peer_rules.h"
#include "reports/text/pattern.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

// NVIDIA's boards with NVSwitches are SXM, also where the name does not say so (H200, B200); NVL
// are cards, which have NVLinks only where they are bridged. vGPUs of such boards have an X in the
// name of the board (A100DX-80C, H100XM-80C).
bool is_named_for_nvlinks(const std::string& name) {
  static const Pattern boards(R"(SXM|HBM3|\b(H20|G?B200|G?B300|H200)\b(?! NVL))");
  static const Pattern of_vgpus(R"([VAHB]\d+D?X[A-Z]?-.*)");
  const std::string profile = vgpu_profile_in(name);
  if (profile.empty()) return boards.is_in(name);
  return is_whole_gpu(profile) && of_vgpus.matches(profile);
}

// NVLinks that are told of, or names of GPUs on boards that have them.
bool has_nvlinks(const Gpu& gpu) {
  return gpu.active_nvlinks.value.value_or(0) + gpu.inactive_nvlinks.value.value_or(0) > 0 ||
         is_named_for_nvlinks(gpu.name);
}

Finding nvlink_lost(const Checkup& checkup, const std::string& pairs) {
  const std::string whole =
      "pass all GPUs of the board and its NVSwitches through to one VM; or, where the host keeps "
      "the NVSwitches, have its nvidia-fabricmanager activate the partition of these GPUs";
  return {Urgency::warning, "nvlink_lost",
          "the GPUs have NVLinks, and this VM has none between them: " + pairs,
          "PCIe carries their exchange, at a tenth of the rate or less",
          advice_for(checkup, {whole,
                               whole + "; of A100 vGPUs: pciPassthruN.cfg.enable_uvm = 0, as "
                                       "unified memory switches NVLink off between them",
                               ""})};
}

std::string fix_of_refusal(const Checkup& checkup) {
  const std::string together = "pass all GPUs of an NVLink domain through together";
  return advice_for(
      checkup,
      {together + "; by PCIe: x-nv-gpudirect-clique=0 of QEMU's vfio-pci, at GPUs below one switch",
       together + "; by PCIe: pciPassthru.allowP2P = TRUE and pciPassthru.RelaxACSforP2P = TRUE in "
                  "the VM's configuration",
       "look at nvidia-smi topo -p2p r, which tells the reason, and at PCIe ACS and the IOMMU "
       "(iommu=pt)"});
}

std::string fix_without_nvlink(const Checkup& checkup) {
  const std::string same_vm =
      "nothing to do where nothing bridges the GPUs; where NVLinks do on the host (nvidia-smi topo "
      "-m "
      "there), pass all GPUs of a bridge through to one VM";
  return advice_for(checkup, {same_vm, same_vm + ", best as a device group (vSphere 8 or later)",
                              "nothing to do where nothing bridges the GPUs; else look at "
                              "nvidia-smi nvlink -s, at the bridge's "
                              "seat, and on a board with NVSwitches at nvidia-fabricmanager"});
}

// GPUs that reach another through switches, not by NVLink, and whose bridges do not tell of ACS.
std::vector<std::string> gpus_of_unknown_acs(const std::vector<Gpu>& gpus) {
  std::vector<std::string> names;
  for (size_t i = 0; i < gpus.size(); ++i) {
    const bool by_switches = std::ranges::any_of(gpus[i].peers, [](const GpuPeer& peer) {
      return peer.nvlink && !*peer.nvlink && at_most_switches(peer.distance);
    });
    if (by_switches && !gpus[i].acs_redirect) names.push_back("GPU " + std::to_string(i));
  }
  return names;
}

void add_acs_of_peers(const Checkup& checkup, int64_t pairs_over_pcie,
                      std::vector<Finding>& findings) {
  if (pairs_over_pcie == 0) return;
  const bool redirected = std::ranges::any_of(
      checkup.gpus, [](const Gpu& gpu) { return gpu.acs_redirect && *gpu.acs_redirect; });
  if (redirected) {
    findings.push_back({Urgency::warning, "acs_redirect",
                        "bridges above the GPUs redirect what peers send one another (PCIe ACS)",
                        "without NVLink it takes the way through the root complex, if it arrives",
                        advice_on_acs(checkup)});
    return;
  }
  const auto unknown = gpus_of_unknown_acs(checkup.gpus);
  if (!unknown.empty()) findings.push_back(acs_unknown("above " + shortened(joined(unknown))));
}

}  // namespace

void add_peer_findings(const Checkup& checkup, std::vector<Finding>& findings) {
  const std::vector<Gpu>& gpus = checkup.gpus;
  int64_t pairs = 0, refused = 0, without_nvlink = 0;
  for (const Gpu& gpu : gpus) {
    for (const GpuPeer& peer : gpu.peers) {
      ++pairs;
      if (peer.reads && !*peer.reads) ++refused;
      if (peer.nvlink && !*peer.nvlink) ++without_nvlink;
    }
  }
  const std::string of_pairs = " of " + std::to_string(pairs) + " paths between GPUs";
  add_acs_of_peers(checkup, refused + without_nvlink, findings);
  if (refused > 0) {
    findings.push_back({Urgency::warning, "peer_access_refused",
                        "no peer access on " + std::to_string(refused) + of_pairs,
                        "their exchange goes through the host's memory, at a fraction of the speed",
                        fix_of_refusal(checkup)});
  } else if (without_nvlink > 0 && is_vm(checkup) && std::ranges::any_of(gpus, has_nvlinks)) {
    findings.push_back(nvlink_lost(checkup, std::to_string(without_nvlink) + of_pairs));
  } else if (without_nvlink > 0) {
    findings.push_back({Urgency::note, "peers_without_nvlink",
                        "no NVLink on " + std::to_string(without_nvlink) + of_pairs,
                        "PCIe carries their exchange", fix_without_nvlink(checkup)});
  } else if (pairs > 0) {
    findings.push_back({Urgency::ok, "peers", "all" + of_pairs.substr(3) + " by NVLink", "", ""});
  }
}

}  // namespace nearmetal
