#include <algorithm>

#include "bench/doctor/diagnose.h"
#include "comm/layout/peer_rules.h"

namespace nearmetal {
namespace {

PeerDevice device_of(const Gpu& gpu) {
  PeerDevice device{.host = this_host, .node = this_host, .mig = gpu.mig_profile.value.has_value()};
  device.vgpu_profile = gpu.vgpu_profile.value.value_or("");
  device.without_nvlink = std::ranges::any_of(
      gpu.peers, [](const GpuPeer& peer) { return peer.nvlink.value == false; });
  return device;
}

}  // namespace

void add_peer_rule_findings(const Checkup& checkup, std::vector<Finding>& findings) {
  std::vector<Finding> found;
  if (checkup.layout) {
    found = checkup.layout->peers;
  } else {
    std::vector<PeerDevice> devices;
    for (const Gpu& gpu : checkup.gpus) devices.push_back(device_of(gpu));
    found = peer_findings("a job on all GPUs of this machine", devices);
  }
  findings.insert(findings.end(), found.begin(), found.end());
}

}  // namespace nearmetal
