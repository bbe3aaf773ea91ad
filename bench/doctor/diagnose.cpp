#include "bench/doctor/diagnose.h"

#include <algorithm>

#include "bench/doctor/advice.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

// Whether MIG is as a configuration says, where one was named.
void add_mig_findings(const Checkup& checkup, std::vector<Finding>& findings) {
  if (!checkup.mig_config) return;
  const MigConfig& wanted = *checkup.mig_config;
  const std::string name = "'" + wanted.label + "' of " + wanted.file;
  constexpr const char* why = "jobs would have other parts of the GPUs, or none";
  if (checkup.gpus.empty()) {
    const std::string reason = checkup.nvml ? "the driver lists no GPU" : checkup.nvml.reason;
    findings.push_back({Urgency::blocker, "mig_config", "no GPU to hold against " + name, why,
                        "see to the driver first: " + reason});
    return;
  }
  const std::vector<std::string> differences = mig_differences(wanted, checkup.gpus);
  for (const std::string& difference : differences) {
    findings.push_back({Urgency::blocker, "mig_config", difference, why, apply_command(wanted)});
  }
  if (!differences.empty()) return;
  findings.push_back({Urgency::ok, "mig_config", "MIG is as " + name + " says", "", ""});
}

// Whether a sweep of a layout file could start, where one was named.
void add_layout_findings(const Checkup& checkup, std::vector<Finding>& findings) {
  if (!checkup.layout) return;
  const LayoutCheck& layout = *checkup.layout;
  for (const std::string& problem : layout.problems) {
    findings.push_back({Urgency::blocker, "layout", problem,
                        "a sweep of this file would refuse it, or its jobs would fail",
                        "change the file, or the machine as it says"});
  }
  if (layout.problems.empty()) {
    findings.push_back({Urgency::ok, "layout",
                        layout.file + ": all that a sweep of it (" +
                            counted(layout.layouts, "layout") + ") needs of this machine is there",
                        "", ""});
  }
  for (const UnsupportedArm& arm : layout.left_out) {
    findings.push_back({Urgency::note, "layout_left_out",
                        layout.file + ": " + arm.name + " is left out: " + arm.reason,
                        "a sweep tells it as unsupported, and runs the others",
                        "none, unless it is to run: use a machine that has it"});
  }
  if (!checkup.host_names.empty()) return;
  findings.push_back({Urgency::note, "network_untried",
                      layout.file + " names no other host, so that no network was tried",
                      "its jobs stay on this machine",
                      "none, unless they are to go on others: name these in \"hosts\""});
}

constexpr int64_t mebibyte = int64_t{1} << 20;
constexpr int64_t few_open_files = 1024;
constexpr int64_t little_disk = 256 * mebibyte;

std::string mebibytes(int64_t bytes) { return std::to_string(bytes / mebibyte) + " MiB"; }

void add_limits(const Limits& limits, bool has_rdma, std::vector<Finding>& findings) {
  const size_t before = findings.size();
  if (limits.shared_memory_bytes && *limits.shared_memory_bytes < small_shared_memory_bytes) {
    findings.push_back({Urgency::warning, "small_shared_memory",
                        "/dev/shm has " + mebibytes(*limits.shared_memory_bytes),
                        "ranks of one host exchange through it; NCCL and MPI fail or go by sockets",
                        "docker: --shm-size=1g; Kubernetes: an emptyDir of medium Memory"});
  }
  if (limits.locked_memory_bytes && *limits.locked_memory_bytes < small_locked_memory_bytes) {
    findings.push_back({has_rdma ? Urgency::warning : Urgency::note, "small_locked_memory",
                        "memlock is " + mebibytes(*limits.locked_memory_bytes),
                        "RDMA between hosts cannot register its buffers",
                        "ulimit -l unlimited, in limits.conf or LimitMEMLOCK= of the service that "
                        "starts ranks (sshd, slurmd); docker: --ulimit memlock=-1; Kubernetes: "
                        "the limit of the node's container runtime"});
  }
  if (limits.open_files && *limits.open_files < few_open_files) {
    findings.push_back({Urgency::warning, "few_open_files",
                        "nofile is " + std::to_string(*limits.open_files),
                        "jobs of many ranks run out of sockets", "ulimit -n 65536"});
  }
  if (findings.size() == before) {
    findings.push_back({Urgency::ok, "limits", "/dev/shm, memlock and nofile suffice", "", ""});
  }
}

void add_cpus(const Environment& environment, std::vector<Finding>& findings) {
  const Maybe<std::string>& governor = environment.processor.governor;
  if (governor && *governor != "performance") {
    findings.push_back({Urgency::note, "governor", "the CPUs' governor is " + *governor,
                        "launches and copies by the CPU become slower and less steady",
                        "cpupower frequency-set -g performance"});
  }
  if (environment.cpu_quota &&
      *environment.cpu_quota < static_cast<double>(environment.usable_cpus)) {
    findings.push_back({Urgency::warning, "cpu_quota",
                        "the control group allows " + significant(*environment.cpu_quota) +
                            " CPUs of " + std::to_string(environment.usable_cpus),
                        "threads beyond it are stopped in the middle of steps",
                        "raise the limit, or bind to as many CPUs"});
  }
  const Maybe<std::string>& clock = environment.virtualisation.clock_source;
  if (clock && (*clock == "hpet" || *clock == "acpi_pm" || *clock == "jiffies")) {
    findings.push_back({Urgency::warning, "slow_clock", "the clock source is " + *clock,
                        "reading the time takes a call of the kernel, or of the hypervisor",
                        "have the hypervisor offer an invariant TSC or its own clock"});
  }
}

void add_network(const std::vector<NetworkInterface>& network, std::vector<Finding>& findings) {
  std::vector<std::string> names;
  for (const NetworkInterface& one : network) {
    if (one.state && *one.state == "up") names.push_back(one.name);
  }
  if (names.size() < 2) return;
  findings.push_back({Urgency::note, "several_interfaces",
                      "several networks are up: " + joined(names),
                      "MPI and NCCL may choose another than you mean, or one without a way through",
                      "name it: OMPI_MCA_btl_tcp_if_include, NCCL_SOCKET_IFNAME"});
}

void add_files(const Checkup& checkup, std::vector<Finding>& findings) {
  if (checkup.plan_cache_writable && !*checkup.plan_cache_writable) {
    findings.push_back({Urgency::warning, "plan_cache_read_only",
                        checkup.plan_cache_folder + " cannot be written",
                        "every run chooses its kernels anew, perhaps others",
                        "make it writable, or give --plan-cache another place"});
  }
  if (checkup.free_disk_bytes && *checkup.free_disk_bytes < little_disk) {
    findings.push_back({Urgency::warning, "little_disk",
                        mebibytes(*checkup.free_disk_bytes) + " are free in this folder",
                        "reports may not fit", "make room, or give --output another place"});
  }
}

// CPUs, memory, limits, network, files and clock.
void add_system_findings(const Checkup& checkup, std::vector<Finding>& findings) {
  add_limits(checkup.environment.limits, !checkup.environment.rdma.empty(), findings);
  add_cpus(checkup.environment, findings);
  add_network(checkup.environment.network, findings);
  add_files(checkup, findings);
  if (checkup.clock_synchronised && !*checkup.clock_synchronised) {
    findings.push_back({Urgency::note, "clock_not_synchronised",
                        "the kernel says that its clock is not synchronised",
                        "times of reports of several hosts do not fit together",
                        "run chrony or systemd-timesyncd; in a VM, take the host's clock"});
  }
}

void add_state(const Gpu& gpu, const GpuNow& now, std::vector<Finding>& found) {
  if (now.processes > 0) {
    found.push_back(
        {Urgency::warning, "gpu_in_use", std::to_string(now.processes) + " processes use it",
         "they take time and memory from the measurement", "end them: nvidia-smi shows who"});
  }
  if (gpu.persistence && !*gpu.persistence) {
    found.push_back({Urgency::note, "persistence_off", "persistence mode is off",
                     "the driver starts anew for each process, which lengthens set-up",
                     "nvidia-smi -pm 1, or run nvidia-persistenced"});
  }
  if (gpu.ecc_change_pending && *gpu.ecc_change_pending) {
    found.push_back({Urgency::warning, "ecc_pending", "a change of ECC waits for a reset",
                     "ECC costs memory and speed; which it will be depends on the next reset",
                     "reset the GPU or restart the machine before measuring"});
  }
  if (gpu.memory_repair_pending && *gpu.memory_repair_pending) {
    found.push_back({Urgency::warning, "memory_repair_pending", "memory repair waits for a reset",
                     "errors may end runs",
                     "reset the GPU; where it stays, have the GPU replaced"});
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
         "steadier, but slower than the GPU can be; the same on both sides of a comparison?",
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
    found.push_back({Urgency::warning, "throttled_now",
                     "its clocks are held down by heat or power now",
                     "it is slow before it has begun", "look at cooling and power supplies"});
  }
  // In a VM the slot is one of the hypervisor's making.
  const bool is_passed_through = gpu.virtualisation && *gpu.virtualisation != "none";
  if (!is_passed_through && gpu.largest_link_generation && gpu.own_link_generation &&
      *gpu.largest_link_generation < *gpu.own_link_generation) {
    found.push_back({Urgency::warning, "slow_slot",
                     "its slot has PCIe " + std::to_string(*gpu.largest_link_generation) +
                         ", the GPU PCIe " + std::to_string(*gpu.own_link_generation),
                     "each generation less halves the rate of copies between host and GPU, and of "
                     "what goes to other hosts",
                     "look at the slot, the riser and the BIOS's limit for it"});
  }
  if (gpu.link_width && gpu.largest_link_width && *gpu.link_width < *gpu.largest_link_width) {
    found.push_back({Urgency::warning, "narrow_link",
                     "its PCIe link is x" + std::to_string(*gpu.link_width) + " of x" +
                         std::to_string(*gpu.largest_link_width),
                     "copies between host and GPU, and between hosts, are as much slower",
                     "reseat it, or look at the slot and its bifurcation"});
  }
}

void add_place(const Gpu& gpu, std::vector<Finding>& found) {
  if (gpu.numa_node && *gpu.numa_node < 0) {
    found.push_back({Urgency::note, "numa_unknown", "its NUMA node is -1",
                     "ranks cannot be put next to their GPU, as in VMs without a virtual topology",
                     "give the VM's firmware the host's NUMA and PCIe topology, or pin by hand"});
  }
  if (gpu.inactive_nvlinks && gpu.active_nvlinks && *gpu.inactive_nvlinks > 0) {
    found.push_back({Urgency::warning, "nvlink_down",
                     std::to_string(*gpu.inactive_nvlinks) + " of " +
                         std::to_string(*gpu.inactive_nvlinks + *gpu.active_nvlinks) +
                         " NVLinks are down",
                     "exchange between GPUs is as much slower",
                     "look at nvidia-fabricmanager on the host, and at nvidia-smi nvlink -s"});
  }
}

void add_gpu_findings(const Gpu& gpu, const GpuNow& now, const std::string& name,
                      std::vector<Finding>& findings) {
  std::vector<Finding> found;
  add_state(gpu, now, found);
  add_speed(gpu, now, found);
  add_place(gpu, found);
  if (found.empty()) found.push_back({Urgency::ok, "gpu", gpu.name + ", nothing to say", "", ""});
  for (Finding& finding : found) {
    finding.seen.insert(0, name + ": ");
    findings.push_back(finding);
  }
}

}  // namespace

std::vector<Finding> diagnose(const Checkup& checkup) {
  std::vector<Finding> findings;
  add_software_findings(checkup, findings);
  for (size_t i = 0; i < checkup.gpus.size(); ++i) {
    const GpuNow now = i < checkup.gpus_now.size() ? checkup.gpus_now[i] : GpuNow{};
    add_gpu_findings(checkup.gpus[i], now, "GPU " + std::to_string(i), findings);
  }
  if (checkup.gpus.size() > 1) add_peer_findings(checkup, findings);
  add_nic_findings(checkup, findings);
  add_peer_rule_findings(checkup, findings);
  add_mig_findings(checkup, findings);
  add_layout_findings(checkup, findings);
  add_system_findings(checkup, findings);
  return findings;
}

}  // namespace nearmetal
