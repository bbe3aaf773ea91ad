#include "reports/conditions/host_conditions.h"

#include <algorithm>
#include <limits>

#include "base/text.h"
#include "reports/document/metric.h"

namespace nearmetal {
namespace {

constexpr double steal_may_grow_by = 0.05;  // of the CPUs' time
constexpr int64_t few_open_files = 1024;
constexpr int64_t mebibyte = int64_t{1} << 20;
// Docker's default is 64 MiB, which ranks of one host do not exchange gradients by.
constexpr int64_t small_shared_memory_bytes = 512 * mebibyte;
constexpr int64_t small_locked_memory_bytes = 64 * mebibyte;

// QEMU names itself in CPUID where it emulates the CPU; by KVM the signature is that of KVM.
Signs emulated_cpu(const Environment& machine) {
  if (machine.virtualisation.hypervisor.value != "qemu") return {};
  return {{"QEMU emulates the CPU in software"}};
}

bool is_held_by_quota(const Environment& machine) {
  return machine.cpu_quota && *machine.cpu_quota < static_cast<double>(machine.usable_cpus);
}

Signs held_by_quota(const Environment& machine) {
  if (!is_held_by_quota(machine)) return {};
  return {{"the control group allows " + significant(*machine.cpu_quota) + " CPUs of " +
           std::to_string(machine.usable_cpus)}};
}

double cpus_of(const Environment& machine) {
  return is_held_by_quota(machine) ? *machine.cpu_quota : static_cast<double>(machine.usable_cpus);
}

// Whether the mask or the quota of the machine that has the fewest is to blame.
template <bool by_quota>
Seen fewer_cpus(const ExplainedSide& base, const ExplainedSide& next) {
  const auto fewest = std::ranges::min_element(
      next.environments, {}, [](const Environment* machine) { return cpus_of(*machine); });
  if (fewest == next.environments.end() || is_held_by_quota(**fewest) != by_quota) return {};
  const std::string what = by_quota
                               ? "the control group's quota of CPUs, of " +
                                     std::to_string((*fewest)->usable_cpus) + " that are usable:"
                               : "usable CPUs:";
  return less(what, cpus_of)(base, next);
}

double most_monitored(const ExplainedSide& side, const char* name) {
  double largest = 0;
  for (const Run* run : side.runs) {
    for (const Rank& rank : run->ranks) {
      largest = std::max(largest, monitored(rank, name).value.value_or(0));
    }
  }
  return largest;
}

Seen stolen_time(const ExplainedSide& base, const ExplainedSide& next) {
  const double here = most_monitored(next, "cpu_steal_share");
  if (here - most_monitored(base, "cpu_steal_share") < steal_may_grow_by) return {};
  return "the hypervisor gave " + significant(100 * here, 3) + " % of the CPUs' time to others";
}

Seen other_processes(const ExplainedSide& base, const ExplainedSide& next) {
  const double there = most_monitored(base, busy_with_others_series);
  const double here = most_monitored(next, busy_with_others_series);
  if (here - there < others_may_use) return {};
  return "other processes kept " + significant(here, 2) + " CPUs busy, " + significant(there, 2) +
         " on the other side";
}

Seen governor_of(const Environment& machine) { return machine.processor.governor.value; }

Signs slow_governor(const Environment& machine) {
  const Seen governor = governor_of(machine);
  if (!governor || governor == "performance") return {};
  return {{"the CPUs' governor is " + *governor}};
}

Seen clock_source_of(const Environment& machine) {
  return machine.virtualisation.clock_source.value;
}

Signs slow_clock(const Environment& machine) {
  const Seen clock = clock_source_of(machine);
  if (clock != "hpet" && clock != "acpi_pm" && clock != "jiffies") return {};
  return {{"the clock source is " + *clock}};
}

bool is_unbound(const Rank& rank) { return !rank.binding || !rank.binding->numa_node; }

Signs several_interfaces(const Environment& machine) {
  std::vector<std::string> names;
  for (const NetworkInterface& one : machine.network) {
    if (one.state.value == "up") names.push_back(one.name);
  }
  if (names.size() < 2) return {};
  return signs_naming(names, "several networks are up: ");
}

const Conditions of_system = {
    of_both(
        {"cpu_emulated"},
        {{Layer::cpu, Layer::clock, Layer::compute, Layer::memory, Layer::launch, Layer::input}},
        Urgency::warning, emulated_cpu, {}, "all that the CPU does takes many times as long",
        {"boot the VM by KVM (-accel kvm); on a host that is a VM itself, allow nested ones"}),
    of_both({"cpu_quota"},
            {{Layer::cpu, Layer::launch}, {Layer::clock, Layer::compute, Layer::memory}},
            Urgency::warning, held_by_quota, fewer_cpus<true>,
            "threads beyond it are stopped in the middle of steps",
            {"raise it (docker: --cpus; Kubernetes: limits.cpu), or bind to as many CPUs"}),
    of_sides("cpu_set_smaller", {{Layer::cpu, Layer::launch}}, fewer_cpus<false>,
             {"give the process as many CPUs: affinity mask, vCPUs of the VM"}),
    of_sides("steal", {{Layer::cpu, Layer::launch, Layer::clock}}, stolen_time,
             {"pin the vCPUs of the VM, and do not give more of them than the host has CPUs"}),
    of_both({"cpus_in_use", "other_processes"},
            {{Layer::cpu, Layer::launch, Layer::clock, Layer::memory, Layer::compute}},
            Urgency::note, {}, other_processes,
            "runs would be disturbed, and their monitor says so (monitor_shared)",
            {"end these processes or bind them to other CPUs, or wait"}),
    of_sides("not_bound", {{Layer::input, Layer::cpu, Layer::memory, Layer::launch}},
             of_ranks("not bound to the CPUs and memory of a NUMA node", is_unbound),
             {"bind to the GPU's NUMA node (--bind auto), and show the host's topology to the VM"}),
    of_both({"slow_clock", "clock_source"}, {{Layer::cpu, Layer::launch}}, Urgency::warning,
            slow_clock, other("clock source:", clock_source_of),
            "reading the time takes a call of the kernel, or of the hypervisor",
            {"let the kernel take tsc or the hypervisor's clock; have the hypervisor offer an "
             "invariant "
             "TSC or its own clock"}),
    of_both({"governor"}, {{Layer::clock, Layer::launch}}, Urgency::note, slow_governor,
            other("governor of the CPUs' frequency:", governor_of),
            "launches and copies by the CPU become slower and less steady",
            {"cpupower frequency-set -g performance"}),
    of_machine("several_interfaces", Urgency::note, several_interfaces,
               "MPI and NCCL may choose another than you mean, or one that reaches no other host",
               {"name it: OMPI_MCA_btl_tcp_if_include, NCCL_SOCKET_IFNAME"}),
    of_sides(
        "hypervisor",
        {{Layer::cpu, Layer::launch, Layer::input, Layer::memory, Layer::communication}},
        of_machines("a virtual machine", is_vm),
        {"look at pinned vCPUs, huge pages, the NUMA topology shown to the VM, and pass-through of "
         "the IOMMU"}),
};

std::string mebibytes(int64_t bytes) { return std::to_string(bytes / mebibyte) + " MiB"; }

// For comparisons: no limit is more than any.
template <Maybe<int64_t> Limits::*limit>
std::optional<double> most_allowed(const Environment& machine) {
  const Maybe<int64_t>& found = machine.limits.*limit;
  if (found.reason == no_limit && !found) return std::numeric_limits<double>::infinity();
  return found.value;
}

std::string allowed_bytes(double bytes) {
  if (bytes == std::numeric_limits<double>::infinity()) return "no limit";
  return readable_fact("limit_bytes", std::to_string(static_cast<int64_t>(bytes)));
}

Signs little_shared_memory(const Environment& machine) {
  const Maybe<int64_t>& bytes = machine.limits.shared_memory_bytes;
  if (!bytes || *bytes >= small_shared_memory_bytes) return {};
  return {{"/dev/shm has " + mebibytes(*bytes)}};
}

Signs little_locked_memory(const Environment& machine) {
  const Maybe<int64_t>& bytes = machine.limits.locked_memory_bytes;
  if (!bytes || *bytes >= small_locked_memory_bytes) return {};
  return {{.seen = "locked memory (memlock) is limited to " + mebibytes(*bytes),
           .severity = machine.rdma.empty() ? Urgency::note : Urgency::warning}};
}

Signs few_files(const Environment& machine) {
  const Maybe<int64_t>& files = machine.limits.open_files;
  if (!files || *files >= few_open_files) return {};
  return {{"open files (nofile) are limited to " + std::to_string(*files)}};
}

// A VM and bare metal alike have half of their memory in it, unless someone set another size.
const std::string larger = "mount -o remount,size=8G /dev/shm, and the same size in /etc/fstab";
const std::string half = "in the VM: " + larger + "; by default it is half of the VM's memory";
const std::string unlimited =
    "ulimit -l unlimited, in limits.conf or LimitMEMLOCK= of the service that starts ranks (sshd, "
    "slurmd)";
const std::string of_vm = "in the VM, where its host's limit does not matter: " + unlimited;

const Conditions of_limits = {
    of_both({"small_shared_memory", "shared_memory_small"}, exchange, Urgency::warning,
            little_shared_memory,
            less("/dev/shm:", most_allowed<&Limits::shared_memory_bytes>, allowed_bytes,
                 small_shared_memory_bytes),
            "ranks of one host exchange through it; NCCL and MPI fail or go by sockets",
            {half, half, larger,
             "docker: --shm-size=1g; Kubernetes: an emptyDir of medium Memory at /dev/shm"}),
    of_both({"small_locked_memory", "locked_memory_small"}, exchange, Urgency::warning,
            little_locked_memory,
            less("locked memory, at most:", most_allowed<&Limits::locked_memory_bytes>,
                 allowed_bytes, small_locked_memory_bytes),
            "RDMA between hosts cannot register its buffers",
            {of_vm, of_vm, unlimited,
             "docker: --ulimit memlock=-1; Kubernetes: the limit of the node's container runtime"}),
    of_machine("few_open_files", Urgency::warning, few_files,
               "jobs of many ranks run out of sockets", {"ulimit -n 65536"}),
};

}  // namespace

const Conditions& system_conditions() { return of_system; }
const Conditions& limit_conditions() { return of_limits; }

}  // namespace nearmetal
