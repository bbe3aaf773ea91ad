#include "bench/doctor/diagnose.h"

#include <algorithm>

#include "bench/doctor/advice.h"
#include "bench/monitor/monitor_sources.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

// "a VM (vmware)"
std::string kind_of(const Checkup& checkup) {
  const Virtualisation& found = checkup.environment.virtualisation;
  if (is_bare_metal(checkup)) return "bare metal";
  if (is_vm(checkup)) return "a VM (" + found.hypervisor.value.value_or("unknown hypervisor") + ")";
  return "VM or bare metal, which is not known (" + found.machine.reason + ")";
}

// The machine that fixes are meant for.
Finding machine_of(const Checkup& checkup) {
  const Virtualisation& found = checkup.environment.virtualisation;
  std::vector<std::string> signs;
  for (const Maybe<std::string>* sign : {&found.dmi_vendor, &found.dmi_product}) {
    if (*sign) signs.push_back(**sign);
  }
  if (found.bios_version) signs.push_back("BIOS " + *found.bios_version);
  std::string seen = "this machine: " + kind_of(checkup);
  if (!signs.empty()) seen += " (" + joined(signs) + ")";
  if (found.container && *found.container != "none")
    seen += ", in a container (" + *found.container + ")";
  const Maybe<std::string>& file = checkup.environment.nccl_topology_file;
  seen += "; NCCL topology file: " + (file ? *file : "none (" + file.reason + ")");
  return {Urgency::ok, "machine", seen, "", ""};
}

// Whether MIG is as a configuration says, where one was named.
void add_mig_findings(const Checkup& checkup, std::vector<Finding>& findings) {
  if (!checkup.mig_config) return;
  const MigConfig& wanted = *checkup.mig_config;
  const std::string name = "'" + wanted.label + "' of " + wanted.file;
  constexpr const char* why = "jobs would have other parts of the GPUs, or none";
  if (checkup.gpus.empty()) {
    const std::string reason = checkup.nvml ? "the driver lists no GPU" : checkup.nvml.reason;
    findings.push_back({Urgency::blocker, "mig_config", "no GPU to check against " + name, why,
                        "fix the driver first: " + reason});
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
    const std::string layouts = " (" + counted(layout.layouts, "layout") + ")";
    findings.push_back(
        {Urgency::ok, "layout",
         layout.file + (layout.names_this_machine
                            ? ": this machine has all that a sweep of it" + layouts + " needs"
                            : layouts + ": its hosts are other machines, whose "
                                        "GPUs are not looked at from here"),
         "", ""});
  }
  for (const UnsupportedArm& arm : layout.left_out) {
    findings.push_back({Urgency::note, "layout_left_out",
                        layout.file + ": " + arm.name + " is left out: " + arm.reason,
                        "a sweep reports it as unsupported and runs the others",
                        "nothing to do, unless it is to run: use a machine that has it"});
  }
  if (!checkup.host_names.empty()) return;
  findings.push_back({Urgency::note, "network_untried",
                      layout.file + " names no other host, so that no network was tried",
                      "its jobs stay on this machine",
                      "nothing to do, unless jobs are to run on others: name these in \"hosts\""});
}

constexpr int64_t mebibyte = int64_t{1} << 20;
constexpr int64_t few_open_files = 1024;
constexpr int64_t little_disk = 256 * mebibyte;

std::string mebibytes(int64_t bytes) { return std::to_string(bytes / mebibyte) + " MiB"; }

// A VM and bare metal alike have half of their memory in it, unless someone set another size.
std::string fix_of_shared_memory(const Checkup& checkup) {
  const std::string larger = "mount -o remount,size=8G /dev/shm, and the same size in /etc/fstab";
  const std::string of_vm = "in the VM: " + larger + "; by default it is half of the VM's memory";
  return advice_by_container(
      checkup, "docker: --shm-size=1g; Kubernetes: an emptyDir of medium Memory at /dev/shm",
      advice_for(checkup, {of_vm, of_vm, larger}));
}

std::string fix_of_locked_memory(const Checkup& checkup) {
  const std::string unlimited =
      "ulimit -l unlimited, in limits.conf or LimitMEMLOCK= of the service that starts ranks "
      "(sshd, slurmd)";
  const std::string of_vm = "in the VM, where its host's limit does not matter: " + unlimited;
  return advice_by_container(
      checkup, "docker: --ulimit memlock=-1; Kubernetes: the limit of the node's container runtime",
      advice_for(checkup, {of_vm, of_vm, unlimited}));
}

void add_memory_limits(const Checkup& checkup, std::vector<Finding>& findings) {
  const Limits& limits = checkup.environment.limits;
  if (limits.shared_memory_bytes && *limits.shared_memory_bytes < small_shared_memory_bytes) {
    findings.push_back({Urgency::warning, "small_shared_memory",
                        "/dev/shm has " + mebibytes(*limits.shared_memory_bytes),
                        "ranks of one host exchange through it; NCCL and MPI fail or go by sockets",
                        fix_of_shared_memory(checkup)});
  }
  if (limits.locked_memory_bytes && *limits.locked_memory_bytes < small_locked_memory_bytes) {
    const bool has_rdma = !checkup.environment.rdma.empty();
    findings.push_back(
        {has_rdma ? Urgency::warning : Urgency::note, "small_locked_memory",
         "locked memory (memlock) is limited to " + mebibytes(*limits.locked_memory_bytes),
         "RDMA between hosts cannot register its buffers", fix_of_locked_memory(checkup)});
  }
}

void add_limits(const Checkup& checkup, std::vector<Finding>& findings) {
  const size_t before = findings.size();
  const Limits& limits = checkup.environment.limits;
  add_memory_limits(checkup, findings);
  if (limits.open_files && *limits.open_files < few_open_files) {
    findings.push_back({Urgency::warning, "few_open_files",
                        "open files (nofile) are limited to " + std::to_string(*limits.open_files),
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
  findings.push_back(
      {Urgency::note, "several_interfaces", "several networks are up: " + joined(names),
       "MPI and NCCL may choose another than you mean, or one that reaches no other host",
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
  add_limits(checkup, findings);
  add_cpus(checkup.environment, findings);
  add_network(checkup.environment.network, findings);
  add_files(checkup, findings);
  if (const Maybe<double>& busy = checkup.cpus_busy_with_others; busy && *busy > others_may_use) {
    findings.push_back({Urgency::note, "cpus_in_use",
                        "other processes keep " + significant(*busy, 2) + " CPUs busy",
                        "runs would be disturbed, and their monitor says so (monitor_shared)",
                        "end these processes, or wait"});
  }
  if (checkup.clock_synchronised && !*checkup.clock_synchronised) {
    findings.push_back({Urgency::note, "clock_not_synchronised",
                        "the kernel says that its clock is not synchronised",
                        "times in reports of several hosts may not agree",
                        "run chrony or systemd-timesyncd; in a VM, take the host's clock"});
  }
}

}  // namespace

std::vector<Finding> diagnose(const Checkup& checkup) {
  std::vector<Finding> findings = {machine_of(checkup)};
  add_software_findings(checkup, findings);
  add_gpu_findings(checkup, findings);
  if (checkup.gpus.size() > 1) add_peer_findings(checkup, findings);
  add_nic_findings(checkup, findings);
  add_peer_rule_findings(checkup, findings);
  add_mig_findings(checkup, findings);
  add_layout_findings(checkup, findings);
  add_system_findings(checkup, findings);
  return findings;
}

}  // namespace nearmetal
