#include <algorithm>

#include "bench/doctor/diagnose.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

class Gathering {
 public:
  Gathering(const std::string& name, std::vector<Finding>& findings)
      : name_(name), findings_(findings) {}

  void add(Urgency severity, const char* code, const std::string& seen, const char* why,
           const char* fix) {
    findings_.push_back({severity, code, name_ + ": " + seen, why, fix});
    ++count_;
  }
  int count() const { return count_; }

 private:
  const std::string& name_;
  std::vector<Finding>& findings_;
  int count_ = 0;
};

void add_state(const Gpu& gpu, const GpuNow& now, Gathering& found) {
  if (now.processes > 0) {
    found.add(Urgency::warning, "gpu_in_use", std::to_string(now.processes) + " processes use it",
              "they take time and memory from the measurement", "end them: nvidia-smi shows who");
  }
  if (gpu.persistence && !*gpu.persistence) {
    found.add(Urgency::note, "persistence_off", "persistence mode is off",
              "the driver starts anew for each process, which lengthens set-up",
              "nvidia-smi -pm 1, or run nvidia-persistenced");
  }
  if (gpu.ecc_change_pending && *gpu.ecc_change_pending) {
    found.add(Urgency::warning, "ecc_pending", "a change of ECC waits for a reset",
              "ECC costs memory and speed; which it will be depends on the next reset",
              "reset the GPU or restart the machine before measuring");
  }
  if (gpu.memory_repair_pending && *gpu.memory_repair_pending) {
    found.add(Urgency::warning, "memory_repair_pending", "memory repair waits for a reset",
              "errors may end runs", "reset the GPU; where it stays, have the GPU replaced");
  }
  if (gpu.compute_mode && *gpu.compute_mode == "prohibited") {
    found.add(Urgency::blocker, "compute_prohibited", "compute mode is prohibited",
              "no program may compute on it", "nvidia-smi -c DEFAULT");
  }
}

void add_speed(const Gpu& gpu, const GpuNow& now, Gathering& found) {
  if (gpu.application_sm_hertz && gpu.largest_sm_hertz &&
      *gpu.application_sm_hertz < *gpu.largest_sm_hertz) {
    found.add(Urgency::note, "clocks_set",
              "an administrator's clock is " +
                  significant(1e-6 * static_cast<double>(*gpu.application_sm_hertz)) + " MHz of " +
                  significant(1e-6 * static_cast<double>(*gpu.largest_sm_hertz)),
              "steadier, but slower than the GPU can be; the same on both sides of a comparison?",
              "nvidia-smi -rac lifts it");
  }
  if (gpu.power_limit_watts && gpu.default_power_limit_watts &&
      *gpu.power_limit_watts < *gpu.default_power_limit_watts) {
    found.add(Urgency::warning, "power_limited",
              "its power limit is " + significant(*gpu.power_limit_watts) + " W of " +
                  significant(*gpu.default_power_limit_watts),
              "the clock falls to keep it", "nvidia-smi -pl, or the same on both sides");
  }
  constexpr int64_t slowed_by_hardware_or_heat = 0x8 | 0x20 | 0x40 | 0x80;
  if (now.throttle_bits && (*now.throttle_bits & slowed_by_hardware_or_heat) != 0) {
    found.add(Urgency::warning, "throttled_now", "its clocks are held down by heat or power now",
              "it is slow before it has begun", "look at cooling and power supplies");
  }
  if (gpu.link_width && gpu.largest_link_width && *gpu.link_width < *gpu.largest_link_width) {
    found.add(Urgency::warning, "narrow_link",
              "its PCIe link is x" + std::to_string(*gpu.link_width) + " of x" +
                  std::to_string(*gpu.largest_link_width),
              "copies between host and GPU, and between hosts, are as much slower",
              "reseat it, or look at the slot and its bifurcation");
  }
}

void add_place(const Gpu& gpu, Gathering& found) {
  if (gpu.numa_node && *gpu.numa_node < 0) {
    found.add(Urgency::note, "numa_unknown", "its NUMA node is -1",
              "ranks cannot be put next to their GPU, as in VMs without a virtual topology",
              "give the VM's firmware the host's NUMA and PCIe topology, or pin by hand");
  }
  if (gpu.inactive_nvlinks && gpu.active_nvlinks && *gpu.inactive_nvlinks > 0) {
    found.add(Urgency::warning, "nvlink_down",
              std::to_string(*gpu.inactive_nvlinks) + " of " +
                  std::to_string(*gpu.inactive_nvlinks + *gpu.active_nvlinks) + " NVLinks are down",
              "exchange between GPUs is as much slower",
              "look at nvidia-fabricmanager on the host, and at nvidia-smi nvlink -s");
  }
}

}  // namespace

void add_gpu_findings(const Gpu& gpu, const GpuNow& now, const std::string& name,
                      std::vector<Finding>& findings) {
  Gathering found(name, findings);
  add_state(gpu, now, found);
  add_speed(gpu, now, found);
  add_place(gpu, found);
  if (found.count() == 0) found.add(Urgency::ok, "gpu", gpu.name + ", nothing to say", "", "");
}

void add_peer_findings(const std::vector<Gpu>& gpus, std::vector<Finding>& findings) {
  int64_t pairs = 0, refused = 0, without_nvlink = 0;
  for (const Gpu& gpu : gpus) {
    for (const GpuPeer& peer : gpu.peers) {
      ++pairs;
      if (peer.reads && !*peer.reads) ++refused;
      if (peer.nvlink && !*peer.nvlink) ++without_nvlink;
    }
  }
  const std::string of_pairs = " of " + std::to_string(pairs) + " paths between GPUs";
  const bool redirected = std::ranges::any_of(
      gpus, [](const Gpu& gpu) { return gpu.acs_redirect && *gpu.acs_redirect; });
  if (redirected && refused + without_nvlink > 0) {
    findings.push_back({Urgency::warning, "acs_redirect",
                        "bridges above the GPUs redirect what peers send one another (PCIe ACS)",
                        "without NVLink it takes the way through the root complex, if it arrives",
                        "on bare metal switch ACS off on these bridges; on the host of a VM leave "
                        "it on, and turn on ATS on GPUs and NICs"});
  }
  if (refused > 0) {
    findings.push_back(
        {Urgency::warning, "peer_access_refused",
         "no peer access on " + std::to_string(refused) + of_pairs,
         "their exchange goes through the host's memory, at a fraction of the speed",
         "in a VM: pass all GPUs of an NVLink domain through together; on bare metal "
         "look at PCIe ACS"});
  } else if (without_nvlink > 0) {
    findings.push_back({Urgency::note, "peers_without_nvlink",
                        "no NVLink on " + std::to_string(without_nvlink) + of_pairs,
                        "PCIe carries their exchange", "none, where the GPUs have no bridge"});
  } else if (pairs > 0) {
    findings.push_back({Urgency::ok, "peers", "all" + of_pairs.substr(3) + " by NVLink", "", ""});
  }
}

}  // namespace nearmetal
