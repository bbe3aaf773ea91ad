#include <algorithm>

#include "bench/doctor/advice.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

// NVLinks that are told of, or names of GPUs on boards that have them.
bool has_nvlinks(const Gpu& gpu) {
  const auto has = [&](const char* part) { return gpu.name.find(part) != std::string::npos; };
  return gpu.active_nvlinks.value.value_or(0) + gpu.inactive_nvlinks.value.value_or(0) > 0 ||
         has("SXM") || has("HBM3");
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
    findings.push_back(
        {Urgency::warning, "peer_access_refused",
         "no peer access on " + std::to_string(refused) + of_pairs,
         "their exchange goes through the host's memory, at a fraction of the speed",
         "in a VM: pass all GPUs of an NVLink domain through together; on bare metal "
         "look at PCIe ACS"});
  } else if (without_nvlink > 0 && is_vm(checkup) && std::ranges::any_of(gpus, has_nvlinks)) {
    findings.push_back(nvlink_lost(checkup, std::to_string(without_nvlink) + of_pairs));
  } else if (without_nvlink > 0) {
    findings.push_back({Urgency::note, "peers_without_nvlink",
                        "no NVLink on " + std::to_string(without_nvlink) + of_pairs,
                        "PCIe carries their exchange", "none, where the GPUs have no bridge"});
  } else if (pairs > 0) {
    findings.push_back({Urgency::ok, "peers", "all" + of_pairs.substr(3) + " by NVLink", "", ""});
  }
}

}  // namespace nearmetal
