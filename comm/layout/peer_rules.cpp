#include "comm/layout/peer_rules.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/text.h"
#include "comm/layout/gpu_profiles.h"

namespace nearmetal {
namespace {

// The profiles as published for releases 7 and 8, the oldest boards first.
constexpr std::array whole_gpus = {
    "V100X-16C",  "V100DX-32C", "RTX6000P-24C", "RTX8000P-48C", "A30-24C",   "A40-48C",
    "A100-40C",   "A100X-40C",  "A100D-80C",    "A100DX-80C",   "A800-40C",  "A800D-80C",
    "A800DX-80C", "H20-96C",    "H20X-141C",    "H100-80C",     "H100L-94C", "H100XL-94C",
    "H100XM-80C", "H100XS-64C", "H200-141C",    "H200X-141C",   "H800-80C",  "H800L-94C",
    "H800XM-80C", "B200X-180C", "B300X-279C"};

constexpr const char* why_slow =
    "gradients go through the host's memory or the network instead, at a fraction of NVLink's "
    "speed";

// The profile that has all of the board; none: none is published as a peer.
std::optional<std::string> whole_of(const VgpuProfile& profile) {
  for (const char* whole : whole_gpus) {
    if (parse_vgpu_profile(whole)->board == profile.board) return whole;
  }
  return std::nullopt;
}

Finding finding_of_vgpu(const std::string& job, const std::string& name) {
  const VgpuProfile profile = parse_vgpu_profile(name).value();
  const std::optional<std::string> whole = whole_of(profile);
  const std::string use = "use " + whole.value_or("vGPUs of a board with NVLink") +
                          ", 1:1 with their GPUs, all in one VM; or pass whole GPUs through";
  if (profile.slices) {
    return {Urgency::warning, "vgpu_peers_mig",
            job + " exchanges gradients among vGPUs " + name + ": those on MIG are no peers",
            why_slow, use};
  }
  if (!whole) {
    return {Urgency::note, "vgpu_peers_unpublished",
            job + " exchanges gradients among vGPUs " + name +
                ": none of this board are published as peers, which takes NVLink",
            why_slow, "look at the peers that doctor lists in the VM; or " + use};
  }
  if (name == whole) return {};
  return {Urgency::warning, "vgpu_peers_part",
          job + " exchanges gradients among vGPUs " + name +
              ": those of a part of a GPU are no peers, " + *whole + " would be",
          why_slow, use};
}

// VMs of one machine count; others have the network between them in any case.
bool several_vms_of_a_node(const std::vector<PeerDevice>& ranks) {
  std::map<std::string, std::set<std::string>> hosts;
  for (const PeerDevice& rank : ranks) hosts[rank.node].insert(rank.host);
  return std::ranges::any_of(hosts, [](const auto& node) { return node.second.size() > 1; });
}

PeerDevice device_of(const PlacedJob& job, const PlacedRank& rank, const std::vector<Host>& hosts) {
  PeerDevice device{.host = rank.host, .mig = rank.mig.has_value()};
  const auto host = std::ranges::find(hosts, rank.host, &Host::name);
  if (host == hosts.end()) return device;
  device.node = node_of(*host);
  if (job.share && job.share->mode == SharingMode::vgpu) {
    device.vgpu_profile = job.share->profile;
  } else if (rank.gpu) {
    device.vgpu_profile = vgpu_profile_in(gpu_facts(*host, *rank.gpu).name);
  }
  return device;
}

}  // namespace

bool is_whole_gpu(const std::string& vgpu_profile) {
  return std::ranges::find(whole_gpus, vgpu_profile) != whole_gpus.end();
}

std::vector<Finding> peer_findings(const std::string& job, const std::vector<PeerDevice>& ranks) {
  std::vector<Finding> findings;
  if (ranks.size() < 2) return findings;
  std::set<std::string> profiles;
  for (const PeerDevice& rank : ranks) {
    if (rank.vgpu_profile) profiles.insert(*rank.vgpu_profile);
  }
  for (const std::string& profile : profiles) {
    const Finding found = finding_of_vgpu(job, profile);
    if (!found.code.empty()) findings.push_back(found);
  }
  if (!profiles.empty() && several_vms_of_a_node(ranks)) {
    findings.push_back({Urgency::warning, "vgpu_peers_between_vms",
                        job + " exchanges gradients among vGPUs of several VMs on one machine, "
                              "which cannot be peers, whatever their size",
                        why_slow, "give one VM all GPUs of the job: 1x1x2 in place of 1x2x1"});
  }
  const auto over_pcie = [](const PeerDevice& rank) {
    return rank.without_nvlink && is_whole_gpu(rank.vgpu_profile.value_or(""));
  };
  if (std::ranges::any_of(ranks, over_pcie)) {
    findings.push_back({Urgency::warning, "vgpu_peers_over_pcie",
                        job + " exchanges gradients among vGPUs without an NVLink between them: "
                              "they are no peers over PCIe",
                        why_slow,
                        "give the VM vGPUs of GPUs that NVLink connects (a device group); on A100 "
                        "switch unified memory off (pciPassthruN.cfg.enable_uvm=0)"});
  }
  if (std::ranges::any_of(ranks, &PeerDevice::mig)) {
    findings.push_back({Urgency::warning, "mig_peers",
                        job + " exchanges gradients among MIG devices, which are no peers",
                        why_slow, "train on whole GPUs, or on each MIG device by itself"});
  }
  return findings;
}

std::vector<Finding> peer_findings(const std::vector<Placement>& placements,
                                   const std::vector<Host>& hosts) {
  std::vector<Finding> findings;
  for (const Placement& placement : placements) {
    for (size_t j = 0; j < placement.jobs.size(); ++j) {
      const PlacedJob& job = placement.jobs[j];
      const std::vector<PeerDevice> ranks = transformed(
          job.ranks, [&](const PlacedRank& rank) { return device_of(job, rank, hosts); });
      const std::string name =
          placement.jobs.size() > 1 ? "job " + std::to_string(j + 1) + " of " : "";
      append(findings, peer_findings(name + "'" + placement.layout + "'", ranks));
    }
  }
  return findings;
}

}  // namespace nearmetal
