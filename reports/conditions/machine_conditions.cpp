#include "reports/conditions/machine_conditions.h"

#include <algorithm>
#include <limits>

#include "base/pattern.h"
#include "base/text.h"
#include "reports/document/warning.h"

namespace nearmetal {
namespace {

constexpr double pinned_is_faster_by = 1.3;  // than pageable memory, at least

std::string megahertz(double hertz) { return three_digits(1e-6 * hertz); }

Seen lowered_clocks_of(const ExplainedSide& side) {
  Seen found;
  for (const Run* run : side.runs) {
    for (const Rank& rank : run->ranks) {
      if (!rank.monitoring) continue;
      for (const MonitorReason& reason : rank.monitoring->reasons) {
        if (reason.code.starts_with("clocks_")) found = text_of(reason);
      }
    }
  }
  return found;
}

Seen lowered_clocks(const ExplainedSide& base, const ExplainedSide& next) {
  return lowered_clocks_of(base) ? std::nullopt : lowered_clocks_of(next);
}

// A sign of each GPU of which something is seen.
template <class Look>
Here at_gpus(const Look& look) {
  return [look](const Environment& machine) {
    Signs signs;
    for (size_t i = 0; i < machine.gpus.size(); ++i) {
      const Seen seen = look(machine.gpus[i]);
      if (!seen) continue;
      signs.push_back({.seen = "GPU " + std::to_string(i) + ": " + *seen, .gpu = i});
    }
    return signs;
  };
}

template <class T, class Owner, class Value>
Here where(Maybe<T> Owner::*fact, const Value& bad, const char* seen) {
  return at_gpus(
      [=](const Gpu& gpu) { return (gpu.*fact).value == T(bad) ? Seen(seen) : std::nullopt; });
}

// "its PCIe link is x8 of x16", where the first is less than the second.
template <class T, class Owner>
Here where_below(const std::string& before, Maybe<T> Owner::*fact, const std::string& between,
                 Maybe<T> Owner::*largest, double scale = 1) {
  return at_gpus([=](const Gpu& gpu) -> Seen {
    if (!is_below(gpu.*fact, gpu.*largest)) return {};
    const auto text = [&](const Maybe<T>& number) {
      return shortest(scale * static_cast<double>(*number), 4);
    };
    return before + text(gpu.*fact) + between + text(gpu.*largest);
  });
}

Signs lost_gpus(const Environment& machine) {
  Signs signs;
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    const Gpu& gpu = machine.gpus[i];
    if (!gpu.lost) continue;
    signs.push_back(
        {.seen = "GPU " + std::to_string(i) + ": the driver does not reach it: " + *gpu.lost,
         .fix = advice_for(machine, advice_on_nvml(gpu.lost_status)),
         .gpu = i});
  }
  return signs;
}

// Of the first that is another than GPU 0.
Signs unlike_gpus(const Environment& machine) {
  for (size_t i = 1; i < machine.gpus.size(); ++i) {
    const Gpu &first = machine.gpus.front(), &gpu = machine.gpus[i];
    const bool known = !gpu.lost && !first.lost && !gpu.name.empty() && !first.name.empty();
    if (!known || gpu.name == first.name) continue;
    return {{.seen = "GPU " + std::to_string(i) + ": " + gpu.name + ", unlike GPU 0, " + first.name,
             .gpu = i}};
  }
  return {};
}

Signs many_vgpus(const Environment& machine) {
  const auto count = std::ranges::count_if(machine.gpus, [](const Gpu& gpu) {
    return gpu.virtualisation.value.value_or("").ends_with("vgpu");  // or host-vgpu
  });
  if (count <= 4) return {};
  return {{.seen = std::to_string(count) + " GPUs of this machine are vGPUs, or shared as such"}};
}

Seen mig_without_devices(const Gpu& gpu) {
  if (gpu.mig.value != true || !gpu.mig_instances.empty()) return {};
  return "MIG is on, and it has no MIG device";
}

Seen slow_slot(const Gpu& gpu) {
  // In a VM the slot is one of the hypervisor's making.
  const bool is_passed_through = gpu.virtualisation.value.value_or("none") != "none";
  if (is_passed_through || !is_below(gpu.largest_link_generation, gpu.own_link_generation)) {
    return {};
  }
  return "its slot has PCIe " + std::to_string(*gpu.largest_link_generation) + ", the GPU PCIe " +
         std::to_string(*gpu.own_link_generation);
}

// Cards of H100 have connectors for three bridges of four links; its boards use all 18.
int64_t connected_nvlinks(const Gpu& gpu) {
  static const Pattern cards(R"(\bH100 (NVL|PCIe)\b)");
  const int64_t all = *gpu.active_nvlinks + gpu.inactive_nvlinks.value.value_or(0);
  return cards.is_in(gpu.name) ? std::min<int64_t>(all, 12) : all;
}

Seen nvlinks_down(const Gpu& gpu) {
  if (!gpu.active_nvlinks) return {};
  const int64_t connected = connected_nvlinks(gpu), down = connected - *gpu.active_nvlinks;
  if (down <= 0) return {};
  return std::to_string(down) + " of " + std::to_string(connected) + " NVLinks are down";
}

Seen huge_pages(const Environment& machine) { return machine.limits.transparent_huge_pages.value; }

Seen virtualisation_of_first(const Environment& machine) {
  return machine.gpus.empty() ? std::nullopt : machine.gpus.front().virtualisation.value;
}

// The most that any look of the window showed: the least of all ranks.
std::optional<double> monitored_generation(const ExplainedSide& side) {
  std::optional<double> least;
  for (const Run* run : side.runs) {
    for (const Rank& rank : run->ranks) {
      if (!rank.monitoring) continue;
      const MonitoredSeries* series = series_named(*rank.monitoring, link_generation_series);
      if (series != nullptr) least = std::min(least.value_or(series->maximum), series->maximum);
    }
  }
  return least;
}

// Under load where both sides were looked at there, else what slot and GPU allow.
Seen lower_generation(const ExplainedSide& base, const ExplainedSide& next) {
  const auto there = monitored_generation(base), here = monitored_generation(next);
  if (there && here && *here < *there) {
    return "generation of PCIe in the window: " + three_digits(*here) + " instead of " +
           three_digits(*there);
  }
  return less("generation of PCIe, at most:", of_gpus(&Gpu::largest_link_generation))(base, next);
}

Seen pageable_input(const ExplainedSide& base, const ExplainedSide& next) {
  const std::string samples = words_of(next.runs.front()->sample).plural;
  return of_ranks(samples + " come from pageable memory", [](const Rank& rank) {
    return rank.probes && rank.probes->needs.input_pageable;
  })(base, next);
}

bool copies_alike(const Rank& rank) {
  if (!rank.probes) return false;
  double pinned = 0, pageable = 0;
  for (const ProbeTime& probe : rank.probes->probes) {
    if (probe.name == input_probe) pinned = probe.median_seconds.value.value_or(0);
    if (probe.name == pageable_probe) pageable = probe.median_seconds.value.value_or(0);
  }
  return pinned > 0 && pageable > 0 && pageable < pinned_is_faster_by * pinned;
}

const std::string reseat = "reseat it, or look at the slot and its bifurcation";
const std::string by_hand = ", or pin by hand (numactl)";
const std::string links = "look at nvidia-smi nvlink -s and at lines of NVRM in dmesg";
const std::string part_of_board =
    "; a VM that has part of a board has its GPUs' links to the rest down";

const Conditions of_gpu = {
    of_machine("gpu_lost", lost_gpus, "no program can use it", {}, Urgency::blocker),
    of_machine("unlike_gpus", unlike_gpus,
               "a job refuses GPUs of several models, and sweeps leave such layouts out",
               {"give jobs the GPUs of one model: \"gpus\" of a layout file"}, Urgency::note),
    of_machine("mig_pending",
               where(&Gpu::mig_change_pending, true, "a change of MIG waits for a reset"),
               "until then the GPU is as before, and jobs on the parts that were asked for fail",
               {"reset the GPU (nvidia-smi --gpu-reset) once no process uses it; a hypervisor may "
                "refuse that: restart the VM, or take the change back (nvidia-smi -mig)",
                "restart the VM, as ESXi refuses resets, or take the change back (nvidia-smi -mig)",
                "reset the GPU (nvidia-smi --gpu-reset) once no process uses it, or restart"}),
    of_machine("mig_empty", at_gpus(mig_without_devices),
               "programs find nothing of it that they could compute on",
               {"create instances (nvidia-smi mig -cgi PROFILE -C), or turn it off (nvidia-smi "
                "-mig 0)"}),
    of_machine("persistence_off", where(&Gpu::persistence, false, "persistence mode is off"),
               "the driver starts anew for each process, which lengthens set-up",
               {"nvidia-smi -pm 1, or run nvidia-persistenced"}, Urgency::note),
    of_machine("ecc_pending",
               where(&Gpu::ecc_change_pending, true, "a change of ECC waits for a reset"),
               "ECC costs memory and speed; the next reset turns it on or off",
               {"reset the GPU or restart the machine before measuring"}),
    of_machine("memory_repair_pending",
               where(&Gpu::memory_repair_pending, true, "memory repair waits for a reset"),
               "errors may end runs",
               {"reset the GPU; if the finding stays, have the GPU replaced"}),
    of_machine("compute_prohibited",
               where(&Gpu::compute_mode, "prohibited", "compute mode is prohibited"),
               "no program may compute on it", {"nvidia-smi -c DEFAULT"}, Urgency::blocker),
    of_both({"vgpu_unlicensed"}, {{Layer::clock, Layer::compute, Layer::memory}},
            where(&Gpu::vgpu_licence, "unlicensed", "it is a vGPU without a licence"), {},
            "an unlicensed vGPU is slowed down after a time of grace",
            {"configure the licence server of NVIDIA's vGPU software"}),
    of_machine("many_vgpus", many_vgpus,
               "beyond four GPUs, vGPUs rarely lie on the NUMA nodes of their VMs' CPUs and memory",
               {"pass whole GPUs through, on the NUMA nodes that the server's vendor recommends"},
               Urgency::note),
    of_both({"throttled_now", "clocks_lowered"}, {{Layer::clock, Layer::compute}}, {},
            lowered_clocks, "a run would begin with lowered clocks",
            {"look at cooling, power supplies and set limits: nvidia-smi -q -d PERFORMANCE"}),
    of_both({"power_limited", "power_limit"}, {{Layer::clock, Layer::compute}},
            where_below("its power limit is ", &Gpu::power_limit_watts, " W of ",
                        &Gpu::default_power_limit_watts),
            less("power limit in W:", of_gpus(&Gpu::power_limit_watts)),
            "the clock falls to keep it",
            {"raise it (nvidia-smi --power-limit), or set the same on both sides"}),
    of_both({"clocks_set", "clock_limit"}, {{Layer::clock, Layer::compute}},
            where_below("an administrator's clock is ", &Gpu::application_sm_hertz, " MHz of ",
                        &Gpu::largest_sm_hertz, 1e-6),
            less("clock that is set, in MHz:", of_gpus(&Gpu::application_sm_hertz), megahertz),
            "steadier, but slower than the GPU can be; set it alike on both sides of a comparison",
            {"nvidia-smi -rac lifts it, of locked clocks nvidia-smi -rgc"}, Urgency::note),
    of_sides("multiprocessors_fewer", {{Layer::compute, Layer::memory}},
             less("multiprocessors:", of_gpus(&Gpu::multiprocessors)),
             {"compare equal shares of a GPU: profile of MIG or vGPU"}),
    of_sides("gpu_virtualisation", {{Layer::compute, Layer::memory, Layer::launch, Layer::input}},
             other("virtualisation of the GPU:", virtualisation_of_first),
             {"a vGPU has its GPU for slices of time; pass the whole GPU through instead"}),
    of_sides(
        "pageable_input", {{Layer::input}}, pageable_input,
        {"pin it (--input host), and give locked memory a limit that allows that (ulimit -l)"}),
    of_both({"slow_slot", "link_generation"}, {{Layer::input}}, at_gpus(slow_slot),
            lower_generation,
            "each generation less halves the rate of copies between host and GPU, and of what goes "
            "to other hosts",
            on_host("look at the slot, the riser and the BIOS's limit for it")),
    of_machine("link_slow", {},
               "copies between host and GPU, and to other hosts, are slower in proportion",
               on_host("look at the slot, the riser, errors of the link (lspci -vv, dmesg: AER), "
                       "the BIOS's limit for it, and power management of PCIe (ASPM)")),
    of_both({"narrow_link", "link_width"}, {{Layer::input}},
            where_below("its PCIe link is x", &Gpu::link_width, " of x", &Gpu::largest_link_width),
            less("lanes of PCIe:", of_gpus(&Gpu::link_width)),
            "copies between host and GPU, and between hosts, are slower in proportion",
            {"on the host compare LnkSta with LnkCap of the GPU (lspci -vv): where it is narrow "
             "there too, " +
                 reseat + "; else widen the VM's port above it (QEMU: pcie-root-port,x-width=16)",
             "on the host: " + reseat, reseat}),
    of_sides("as_if_pageable", {{Layer::input}},
             of_ranks("copies from pinned memory are hardly faster than from pageable memory",
                      copies_alike),
             {"pinned memory is copied by way of other buffers: look at the IOMMU, and at "
              "encryption of the VM's memory"}),
    of_sides("huge_pages", {{Layer::memory}}, other("transparent huge pages:", huge_pages),
             {"back the process, and the VM's memory on the host, by huge pages"}),
    of_machine("numa_unknown", where(&Gpu::numa_node, -1, "its NUMA node is -1"),
               "ranks cannot be put next to their GPU, as in VMs without a virtual topology",
               {"give the VM NUMA nodes that are those of its host (libvirt: <numatune>, and "
                "<numa> in <cpu>), and the GPU a pxb-pcie of its node" +
                    by_hand,
                "give the VM as many virtual NUMA nodes as its GPUs' sockets, and in vSphere 8 or "
                "later assign each GPU to its node (VM options, CPU topology)" +
                    by_hand,
                "look for NUMA in the BIOS and its updates: the firmware (ACPI _PXM) tells the "
                "nodes of slots" +
                    by_hand},
               Urgency::note),
    of_both(
        {"nvlink_down", "nvlinks_fewer"}, exchange, at_gpus(nvlinks_down),
        less("active NVLinks of a GPU:", of_gpus(&Gpu::active_nvlinks)),
        "exchange between GPUs is slower in proportion",
        {links +
             "; on the host: whether nvidia-fabricmanager has activated the partition of the VM's "
             "GPUs" +
             part_of_board,
         links +
             "; on the host: whether all GPUs and NVSwitches of the board are passed to this VM" +
             part_of_board,
         links +
             ", start nvidia-fabricmanager where the board has NVSwitches, and reset the GPUs"}),
};

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
  int64_t cpus = 1;
  for (const Environment* machine : next.environments) cpus = std::max(cpus, machine->logical_cpus);
  if (here - there < others_may_use_of(cpus)) return {};
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
        emulated_cpu, {}, "all that the CPU does takes many times as long",
        {"boot the VM by KVM (-accel kvm); on a host that is a VM itself, allow nested ones"}),
    of_both({"cpu_quota"},
            {{Layer::cpu, Layer::launch}, {Layer::clock, Layer::compute, Layer::memory}},
            held_by_quota, fewer_cpus<true>, "threads beyond it are stopped in the middle of steps",
            {"raise it (docker: --cpus; Kubernetes: limits.cpu), or bind to as many CPUs"}),
    of_sides("cpu_set_smaller", {{Layer::cpu, Layer::launch}}, fewer_cpus<false>,
             {"give the process as many CPUs: affinity mask, vCPUs of the VM"}),
    of_sides("steal", {{Layer::cpu, Layer::launch, Layer::clock}}, stolen_time,
             {"pin the vCPUs of the VM, and do not give more of them than the host has CPUs"}),
    of_both({"cpus_in_use", "other_processes"},
            {{Layer::cpu, Layer::launch, Layer::clock, Layer::memory, Layer::compute}}, {},
            other_processes, "runs would be disturbed, and their monitor says so (monitor_shared)",
            {"end these processes or bind them to other CPUs, or wait"}, Urgency::note),
    of_sides("not_bound", {{Layer::input, Layer::cpu, Layer::memory, Layer::launch}},
             of_ranks("not bound to the CPUs and memory of a NUMA node", is_unbound),
             {"bind to the GPU's NUMA node (--bind auto), and show the host's topology to the VM"}),
    of_both({"slow_clock", "clock_source"}, {{Layer::cpu, Layer::launch}}, slow_clock,
            other("clock source:", clock_source_of),
            "reading the time takes a call of the kernel, or of the hypervisor",
            {"let the kernel take tsc or the hypervisor's clock; have the hypervisor offer an "
             "invariant TSC or its own clock"}),
    of_both({"governor"}, {{Layer::clock, Layer::launch}}, slow_governor,
            other("governor of the CPUs' frequency:", governor_of),
            "launches and copies by the CPU become slower and less steady",
            {"cpupower frequency-set -g performance"}, Urgency::note),
    of_machine("several_interfaces", several_interfaces,
               "MPI and NCCL may choose another than you mean, or one that reaches no other host",
               {"name it: OMPI_MCA_btl_tcp_if_include, NCCL_SOCKET_IFNAME"}, Urgency::note),
    of_sides("hypervisor",
             {{Layer::cpu, Layer::launch, Layer::input, Layer::memory, Layer::communication}},
             of_machines("a virtual machine", is_vm),
             {"look at pinned vCPUs, huge pages, the NUMA topology shown to the VM, and "
              "pass-through of the IOMMU"}),
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
    of_both({"small_shared_memory", "shared_memory_small"}, exchange, little_shared_memory,
            less("/dev/shm:", most_allowed<&Limits::shared_memory_bytes>, allowed_bytes,
                 small_shared_memory_bytes),
            "ranks of one host exchange through it; NCCL and MPI fail or go by sockets",
            {half, half, larger,
             "docker: --shm-size=1g; Kubernetes: an emptyDir of medium Memory at /dev/shm"}),
    of_both({"small_locked_memory", "locked_memory_small"}, exchange, little_locked_memory,
            less("locked memory, at most:", most_allowed<&Limits::locked_memory_bytes>,
                 allowed_bytes, small_locked_memory_bytes),
            "RDMA between hosts cannot register its buffers",
            {of_vm, of_vm, unlimited,
             "docker: --ulimit memlock=-1; Kubernetes: the limit of the node's container runtime"}),
    of_machine("few_open_files", few_files, "jobs of many ranks run out of sockets",
               {"ulimit -n 65536"}),
};

}  // namespace

const Conditions& gpu_conditions() { return of_gpu; }
const Conditions& system_conditions() { return of_system; }
const Conditions& limit_conditions() { return of_limits; }

}  // namespace nearmetal
