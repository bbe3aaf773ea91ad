#include "bench/doctor/advice.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

void add_state(const Gpu& gpu, const GpuNow& now, std::vector<Finding>& found) {
  if (gpu.lost) {
    found.push_back(
        {Urgency::blocker, "gpu_lost", "the driver does not reach it: " + *gpu.lost,
         "no program can use it",
         "look for Xid 79 in `dmesg`, reset the GPU or restart the machine; if it stays "
         "lost, look at its power and its slot"});
    return;
  }
  if (now.processes.value.value_or(0) > 0) {
    found.push_back(
        {Urgency::warning, "gpu_in_use", std::to_string(*now.processes) + " processes use it",
         "they take time and memory from the measurement", "end them; nvidia-smi lists them"});
  }
  if (gpu.persistence && !*gpu.persistence) {
    found.push_back({Urgency::note, "persistence_off", "persistence mode is off",
                     "the driver starts anew for each process, which lengthens set-up",
                     "nvidia-smi -pm 1, or run nvidia-persistenced"});
  }
  if (gpu.ecc_change_pending && *gpu.ecc_change_pending) {
    found.push_back({Urgency::warning, "ecc_pending", "a change of ECC waits for a reset",
                     "ECC costs memory and speed; the next reset turns it on or off",
                     "reset the GPU or restart the machine before measuring"});
  }
  if (gpu.memory_repair_pending && *gpu.memory_repair_pending) {
    found.push_back({Urgency::warning, "memory_repair_pending", "memory repair waits for a reset",
                     "errors may end runs",
                     "reset the GPU; if the finding stays, have the GPU replaced"});
  }
  if (gpu.compute_mode && *gpu.compute_mode == "prohibited") {
    found.push_back({Urgency::blocker, "compute_prohibited", "compute mode is prohibited",
                     "no program may compute on it", "nvidia-smi -c DEFAULT"});
  }
}

void add_speed(const Gpu& gpu, const GpuNow& now, std::vector<Finding>& found) {
  if (gpu.application_sm_hertz && gpu.largest_sm_hertz &&
      *gpu.application_sm_hertz < *gpu.largest_sm_hertz) {
    found.push_back(
        {Urgency::note, "clocks_set",
         "an administrator's clock is " +
             significant(1e-6 * static_cast<double>(*gpu.application_sm_hertz)) + " MHz of " +
             significant(1e-6 * static_cast<double>(*gpu.largest_sm_hertz)),
         "steadier, but slower than the GPU can be; set it alike on both sides of a comparison",
         "nvidia-smi -rac lifts it"});
  }
  if (gpu.power_limit_watts && gpu.default_power_limit_watts &&
      *gpu.power_limit_watts < *gpu.default_power_limit_watts) {
    found.push_back({Urgency::warning, "power_limited",
                     "its power limit is " + significant(*gpu.power_limit_watts) + " W of " +
                         significant(*gpu.default_power_limit_watts),
                     "the clock falls to keep it", "nvidia-smi -pl, or the same on both sides"});
  }
  constexpr int64_t slowed_by_hardware_or_heat = 0x8 | 0x20 | 0x40 | 0x80;
  if (now.throttle_bits && (*now.throttle_bits & slowed_by_hardware_or_heat) != 0) {
    found.push_back(
        {Urgency::warning, "throttled_now", "its clocks are held down by heat or power now",
         "a run would begin with lowered clocks", "look at cooling and power supplies"});
  }
}

std::string fix_of_slow_slot(const Checkup& checkup) {
  const std::string slot = "look at the slot, the riser and the BIOS's limit for it";
  return advice_for(checkup, {"on the host: " + slot, "on the host: " + slot, slot});
}

std::string fix_of_narrow_link(const Checkup& checkup) {
  const std::string reseat = "reseat it, or look at the slot and its bifurcation";
  const std::string compare = "on the host compare LnkSta with LnkCap of the GPU (lspci -vv): ";
  return advice_for(checkup,
                    {compare + "where it is narrow there too, " + reseat +
                         "; else widen the VM's port above it (QEMU: pcie-root-port,x-width=16)",
                     "on the host: " + reseat, reseat});
}

void add_link(const Checkup& checkup, const Gpu& gpu, std::vector<Finding>& found) {
  // In a VM the slot is one of the hypervisor's making.
  const bool is_passed_through = gpu.virtualisation && *gpu.virtualisation != "none";
  if (!is_passed_through && gpu.largest_link_generation && gpu.own_link_generation &&
      *gpu.largest_link_generation < *gpu.own_link_generation) {
    found.push_back({Urgency::warning, "slow_slot",
                     "its slot has PCIe " + std::to_string(*gpu.largest_link_generation) +
                         ", the GPU PCIe " + std::to_string(*gpu.own_link_generation),
                     "each generation less halves the rate of copies between host and GPU, and of "
                     "what goes to other hosts",
                     fix_of_slow_slot(checkup)});
  }
  if (gpu.link_width && gpu.largest_link_width && *gpu.link_width < *gpu.largest_link_width) {
    found.push_back({Urgency::warning, "narrow_link",
                     "its PCIe link is x" + std::to_string(*gpu.link_width) + " of x" +
                         std::to_string(*gpu.largest_link_width),
                     "copies between host and GPU, and between hosts, are slower in proportion",
                     fix_of_narrow_link(checkup)});
  }
}

std::string fix_of_numa(const Checkup& checkup) {
  const std::string by_hand = ", or pin by hand (numactl)";
  return advice_for(
      checkup,
      {"give the VM NUMA nodes that are those of its host (libvirt: <numatune>, and <numa> in "
       "<cpu>), and the GPU a pxb-pcie of its node" +
           by_hand,
       "give the VM as many virtual NUMA nodes as its GPUs' sockets, and in vSphere 8 or later "
       "assign each GPU to its node (VM options, CPU topology)" +
           by_hand,
       "look for NUMA in the BIOS and its updates: the firmware (ACPI _PXM) tells the nodes of "
       "slots" +
           by_hand});
}

std::string fix_of_nvlinks(const Checkup& checkup) {
  const std::string here = "look at nvidia-smi nvlink -s and at lines of NVRM in dmesg";
  const std::string parts = "; a VM that has part of a board has its GPUs' links to the rest down";
  return advice_for(
      checkup,
      {here +
           "; on the host: whether nvidia-fabricmanager has activated the partition of the VM's "
           "GPUs" +
           parts,
       here + "; on the host: whether all GPUs and NVSwitches of the board are passed to this VM" +
           parts,
       here + ", start nvidia-fabricmanager where the board has NVSwitches, and reset the GPUs"});
}

void add_place(const Checkup& checkup, const Gpu& gpu, std::vector<Finding>& found) {
  if (gpu.numa_node && *gpu.numa_node < 0) {
    found.push_back({Urgency::note, "numa_unknown", "its NUMA node is -1",
                     "ranks cannot be put next to their GPU, as in VMs without a virtual topology",
                     fix_of_numa(checkup)});
  }
  if (gpu.inactive_nvlinks && gpu.active_nvlinks && *gpu.inactive_nvlinks > 0) {
    found.push_back({Urgency::warning, "nvlink_down",
                     std::to_string(*gpu.inactive_nvlinks) + " of " +
                         std::to_string(*gpu.inactive_nvlinks + *gpu.active_nvlinks) +
                         " NVLinks are down",
                     "exchange between GPUs is slower in proportion", fix_of_nvlinks(checkup)});
  }
}

void add_findings_of(const Checkup& checkup, size_t index, std::vector<Finding>& findings) {
  const Gpu& gpu = checkup.gpus[index];
  const GpuNow now = index < checkup.gpus_now.size() ? checkup.gpus_now[index] : GpuNow{};
  std::vector<Finding> found;
  add_state(gpu, now, found);
  add_speed(gpu, now, found);
  add_link(checkup, gpu, found);
  add_place(checkup, gpu, found);
  if (found.empty()) found.push_back({Urgency::ok, "gpu", gpu.name + ", no findings", "", ""});
  for (Finding& finding : found) {
    finding.seen = "GPU " + std::to_string(index) + ": " + finding.seen;
    findings.push_back(finding);
  }
}

}  // namespace

void add_gpu_findings(const Checkup& checkup, std::vector<Finding>& findings) {
  for (size_t i = 0; i < checkup.gpus.size(); ++i) add_findings_of(checkup, i, findings);
}

}  // namespace nearmetal
