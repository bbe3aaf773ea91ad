#include "reports/conditions/gpu_conditions.h"

#include <algorithm>

#include "base/text.h"
#include "reports/document/warning_text.h"

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

template <class T, class Value>
Here where(Maybe<T> Gpu::*fact, const Value& bad, const char* seen) {
  return at_gpus(
      [=](const Gpu& gpu) { return (gpu.*fact).value == T(bad) ? Seen(seen) : std::nullopt; });
}

// "its PCIe link is x8 of x16", where the first is less than the second.
template <class T>
Here where_below(const std::string& before, Maybe<T> Gpu::*fact, const std::string& between,
                 Maybe<T> Gpu::*largest, double scale = 1) {
  return at_gpus([=](const Gpu& gpu) -> Seen {
    if (!is_below(gpu.*fact, gpu.*largest)) return {};
    const auto text = [&](const Maybe<T>& number) {
      return shortest(scale * static_cast<double>(*number), 4);
    };
    return before + text(gpu.*fact) + between + text(gpu.*largest);
  });
}

Seen lost(const Gpu& gpu) {
  if (!gpu.lost) return {};
  return "the driver does not reach it: " + *gpu.lost;
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

Seen nvlinks_down(const Gpu& gpu) {
  const int64_t down = gpu.inactive_nvlinks.value.value_or(0);
  if (down == 0 || !gpu.active_nvlinks) return {};
  return std::to_string(down) + " of " + std::to_string(down + *gpu.active_nvlinks) +
         " NVLinks are down";
}

Seen huge_pages(const Environment& machine) { return machine.limits.transparent_huge_pages.value; }

Seen virtualisation_of_first(const Environment& machine) {
  return machine.gpus.empty() ? std::nullopt : machine.gpus.front().virtualisation.value;
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
    of_machine("gpu_lost", Urgency::blocker, at_gpus(lost), "no program can use it",
               {"look for Xid 79 in `dmesg`, reset the GPU or restart the machine; if it stays "
                "lost, look at its power and its slot"}),
    of_machine("persistence_off", Urgency::note,
               where(&Gpu::persistence, false, "persistence mode is off"),
               "the driver starts anew for each process, which lengthens set-up",
               {"nvidia-smi -pm 1, or run nvidia-persistenced"}),
    of_machine("ecc_pending", Urgency::warning,
               where(&Gpu::ecc_change_pending, true, "a change of ECC waits for a reset"),
               "ECC costs memory and speed; the next reset turns it on or off",
               {"reset the GPU or restart the machine before measuring"}),
    of_machine("memory_repair_pending", Urgency::warning,
               where(&Gpu::memory_repair_pending, true, "memory repair waits for a reset"),
               "errors may end runs",
               {"reset the GPU; if the finding stays, have the GPU replaced"}),
    of_machine("compute_prohibited", Urgency::blocker,
               where(&Gpu::compute_mode, "prohibited", "compute mode is prohibited"),
               "no program may compute on it", {"nvidia-smi -c DEFAULT"}),
    of_both({"vgpu_unlicensed"}, {{Layer::clock, Layer::compute, Layer::memory}}, Urgency::warning,
            where(&Gpu::vgpu_licence, "unlicensed", "it is a vGPU without a licence"), {},
            "an unlicensed vGPU is slowed down after a time of grace",
            {"configure the licence server of NVIDIA's vGPU software"}),
    of_both({"throttled_now", "clocks_lowered"}, {{Layer::clock, Layer::compute}}, Urgency::warning,
            {}, lowered_clocks, "a run would begin with lowered clocks",
            {"look at cooling, power supplies and set limits: nvidia-smi -q -d PERFORMANCE"}),
    of_both({"power_limited", "power_limit"}, {{Layer::clock, Layer::compute}}, Urgency::warning,
            where_below("its power limit is ", &Gpu::power_limit_watts, " W of ",
                        &Gpu::default_power_limit_watts),
            less("power limit in W:", of_gpus(&Gpu::power_limit_watts)),
            "the clock falls to keep it",
            {"raise it (nvidia-smi --power-limit), or set the same on both sides"}),
    of_both({"clocks_set", "clock_limit"}, {{Layer::clock, Layer::compute}}, Urgency::note,
            where_below("an administrator's clock is ", &Gpu::application_sm_hertz, " MHz of ",
                        &Gpu::largest_sm_hertz, 1e-6),
            less("clock that is set, in MHz:", of_gpus(&Gpu::application_sm_hertz), megahertz),
            "steadier, but slower than the GPU can be; set it alike on both sides of a comparison",
            {"nvidia-smi -rac lifts it, of locked clocks nvidia-smi -rgc"}),
    of_sides("multiprocessors_fewer", {{Layer::compute, Layer::memory}},
             less("multiprocessors:", of_gpus(&Gpu::multiprocessors)),
             {"compare equal shares of a GPU: profile of MIG or vGPU"}),
    of_sides("gpu_virtualisation", {{Layer::compute, Layer::memory, Layer::launch, Layer::input}},
             other("virtualisation of the GPU:", virtualisation_of_first),
             {"a vGPU has its GPU for slices of time; pass the whole GPU through instead"}),
    of_sides(
        "pageable_input", {{Layer::input}}, pageable_input,
        {"pin it (--input host), and give locked memory a limit that allows that (ulimit -l)"}),
    of_both(
        {"slow_slot", "link_generation"}, {{Layer::input}}, Urgency::warning, at_gpus(slow_slot),
        less("generation of PCIe, at most:", of_gpus(&Gpu::largest_link_generation)),
        "each generation less halves the rate of copies between host and GPU, and of what goes to "
        "other hosts",
        on_host("look at the slot, the riser and the BIOS's limit for it")),
    of_both(
        {"narrow_link", "link_width"}, {{Layer::input}}, Urgency::warning,
        where_below("its PCIe link is x", &Gpu::link_width, " of x", &Gpu::largest_link_width),
        less("lanes of PCIe:", of_gpus(&Gpu::link_width)),
        "copies between host and GPU, and between hosts, are slower in proportion",
        {"on the host compare LnkSta with LnkCap of the GPU (lspci -vv): where it is narrow there "
         "too, " +
             reseat + "; else widen the VM's port above it (QEMU: pcie-root-port,x-width=16)",
         "on the host: " + reseat, reseat}),
    of_sides(
        "as_if_pageable", {{Layer::input}},
        of_ranks("copies from pinned memory are hardly faster than from pageable memory",
                 copies_alike),
        {"pinned memory is copied by way of other buffers: look at the IOMMU, and at encryption of "
         "the VM's memory"}),
    of_sides("huge_pages", {{Layer::memory}}, other("transparent huge pages:", huge_pages),
             {"back the process, and the VM's memory on the host, by huge pages"}),
    of_machine(
        "numa_unknown", Urgency::note, where(&Gpu::numa_node, -1, "its NUMA node is -1"),
        "ranks cannot be put next to their GPU, as in VMs without a virtual topology",
        {"give the VM NUMA nodes that are those of its host (libvirt: <numatune>, and <numa> in "
         "<cpu>), and the GPU a pxb-pcie of its node" +
             by_hand,
         "give the VM as many virtual NUMA nodes as its GPUs' sockets, and in vSphere 8 or later "
         "assign each GPU to its node (VM options, CPU topology)" +
             by_hand,
         "look for NUMA in the BIOS and its updates: the firmware (ACPI _PXM) tells the nodes of "
         "slots" +
             by_hand}),
    of_both(
        {"nvlink_down", "nvlinks_fewer"}, exchange, Urgency::warning, at_gpus(nvlinks_down),
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

}  // namespace

const Conditions& gpu_conditions() { return of_gpu; }

}  // namespace nearmetal
