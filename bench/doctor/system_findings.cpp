#include "bench/doctor/diagnose.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

constexpr int64_t mebibyte = int64_t{1} << 20;
constexpr int64_t small_shared_memory = 512 * mebibyte;  // Docker gives 64 MiB
constexpr int64_t small_locked_memory = 64 * mebibyte;   // RDMA registers buffers of this order
constexpr int64_t few_open_files = 1024;
constexpr int64_t little_disk = 256 * mebibyte;

std::string mebibytes(int64_t bytes) { return std::to_string(bytes / mebibyte) + " MiB"; }

void add_limits(const Limits& limits, std::vector<Finding>& findings) {
  const size_t before = findings.size();
  if (limits.shared_memory_bytes && *limits.shared_memory_bytes < small_shared_memory) {
    findings.push_back({Urgency::warning, "small_shared_memory",
                        "/dev/shm has " + mebibytes(*limits.shared_memory_bytes),
                        "ranks of one host exchange through it; NCCL and MPI fail or go by sockets",
                        "docker: --shm-size=1g; Kubernetes: an emptyDir of medium Memory"});
  }
  if (limits.locked_memory_bytes && *limits.locked_memory_bytes < small_locked_memory) {
    findings.push_back({Urgency::note, "small_locked_memory",
                        "memlock is " + mebibytes(*limits.locked_memory_bytes),
                        "RDMA between hosts cannot register its buffers",
                        "ulimit -l unlimited; docker: --ulimit memlock=-1"});
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

}  // namespace

void add_system_findings(const Checkup& checkup, std::vector<Finding>& findings) {
  add_limits(checkup.environment.limits, findings);
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

}  // namespace nearmetal
