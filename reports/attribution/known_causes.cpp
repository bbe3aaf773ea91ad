#include "reports/attribution/known_causes.h"

#include <set>
#include <stdexcept>
#include <string>

namespace nearmetal {
namespace {

struct Rule {
  const char* code;
  std::set<Layer> layers;
  Look look;
  const char* hint;
};

Seen gpu_virtualisation(const Environment& environment) {
  if (environment.gpus.empty()) return std::nullopt;
  return environment.gpus.front().virtualisation.value;
}
Seen huge_pages(const Environment& environment) {
  return environment.limits.transparent_huge_pages.value;
}
Seen clock_source(const Environment& environment) {
  return environment.virtualisation.clock_source.value;
}
Seen governor(const Environment& environment) { return environment.processor.governor.value; }

std::vector<Rule> rules_of_communication() {
  using enum Layer;
  return {
      {"p2p_refused",
       {communication},
       peers_lack("GPUs cannot read one another's memory", &GpuPeer::reads),
       "give the VM peer access: IOMMU and ACS, or the fabric manager of the NVSwitches"},
      {"nvlink_absent",
       {communication},
       peers_lack("there is no NVLink between GPUs", &GpuPeer::nvlink),
       "pass the NVSwitches through, or start the fabric manager"},
      {"nvlinks_fewer",
       {communication},
       less_of_gpus("active NVLinks of a GPU:", &Gpu::active_nvlinks),
       "look for links that are down: nvidia-smi nvlink --status"},
      {"transport",
       {communication},
       transport_variables,
       "unset them: they keep NCCL from its fastest transport"},
      {"p2p_lost",
       {communication},
       lost_p2p,
       "P2P needs peer access: GPUs of one NVLink domain passed through together, ACS or ATS"},
      {"shared_memory_lost",
       {communication},
       lost_shared_memory,
       "ranks of one host need a common IPC namespace, /dev/shm and host name; those of several "
       "VMs have the network alone: put more GPUs into each"},
      {"transport_chosen",
       {communication},
       other_transports,
       "NCCL_DEBUG=INFO tells why: P2P needs peer access, shared memory one host, RDMA its NICs"},
      {"shared_memory_small",
       {communication},
       small_shared_memory,
       "docker: --shm-size=1g; Kubernetes: an emptyDir of medium Memory at /dev/shm"},
  };
}

std::vector<Rule> rules_of_nics() {
  using enum Layer;
  return {
      {"rdma_lost",
       {communication},
       lost_rdma,
       "give the VM or container its NIC, a virtual function of it, and /dev/infiniband"},
      {"device_files_missing",
       {communication},
       lost_device_files,
       "docker: --device /dev/infiniband; Kubernetes: ask for the NIC of an RDMA device plugin"},
      {"gdr_lost",
       {communication},
       lost_gpu_direct_rdma,
       "GPUDirect RDMA needs nvidia_peermem or dma-bufs, and in a VM ATS or a NIC near the GPU"},
      {"nics_fewer",
       {communication},
       fewer_nics,
       "pass all NICs through, and look for ports that are down: rdma link"},
      {"nic_distance",
       {communication},
       farther_nics,
       "show the VM the host's PCIe topology, or give it the NIC on the GPU's switch"},
      {"ats_lost",
       {communication},
       lost_ats,
       "turn on ATS of NIC (mlxconfig ATS_ENABLED=1), GPU and hypervisor: without it what they "
       "send one another takes the way through the root complex"},
      {"network_slower",
       {communication},
       slower_network,
       "look at ports and cables (ethtool, rdma link), and at what the hypervisor lends"},
      {"locked_memory_small",
       {communication},
       small_locked_memory,
       "RDMA locks its buffers: ulimit -l unlimited; docker: --ulimit memlock=-1"},
  };
}

std::vector<Rule> rules_of_cpus() {
  using enum Layer;
  constexpr const char* raise_quota =
      "raise it (docker: --cpus; Kubernetes: limits.cpu): threads beyond it stop within steps";
  return {
      {"cpu_quota", {cpu, launch}, lower_quota, raise_quota},
      {"cpu_quota", {clock, compute, memory}, lower_quota_of_work, raise_quota},
      {"cpu_set_smaller",
       {cpu, launch},
       fewer_cpus,
       "give the process as many CPUs: affinity mask, vCPUs of the VM"},
      {"steal",
       {cpu, launch, clock},
       stolen_time,
       "pin the vCPUs of the VM, and do not give more of them than the host has CPUs"},
      {"other_processes",
       {cpu, launch, clock, memory, compute},
       other_processes,
       "end what else runs there, or bind it to other CPUs"},
      {"not_bound",
       {input, cpu, memory, launch},
       not_bound,
       "bind to the GPU's NUMA node (--bind auto), and show the host's topology to the VM"},
      {"clock_source",
       {cpu, launch},
       other_text("clock source:", clock_source),
       "let the kernel take tsc or the hypervisor's clock: others cost a trap at each look"},
      {"governor",
       {clock, launch},
       other_text("governor of the CPUs' frequency:", governor),
       "set it to performance: cpupower frequency-set -g performance"},
  };
}

std::vector<Rule> rules_of_devices() {
  using enum Layer;
  return {
      {"clocks_lowered",
       {clock, compute},
       lowered_clocks,
       "look at cooling, power and set limits: nvidia-smi -q -d PERFORMANCE"},
      {"power_limit",
       {clock, compute},
       less_of_gpus("power limit in W:", &Gpu::power_limit_watts),
       "raise it: nvidia-smi --power-limit"},
      {"clock_limit",
       {clock, compute},
       less_of_gpus("clock that is set, in MHz:", &Gpu::application_sm_hertz, 1e-6),
       "take the limit away: nvidia-smi --reset-gpu-clocks"},
      {"multiprocessors_fewer",
       {compute, memory},
       less_of_gpus("multiprocessors:", &Gpu::multiprocessors),
       "compare equal shares of a GPU: profile of MIG or vGPU"},
      {"gpu_virtualisation",
       {compute, memory, launch, input},
       other_text("virtualisation of the GPU:", gpu_virtualisation),
       "a vGPU has its GPU for slices of time; pass the whole GPU through instead"},
      {"pageable_input",
       {input},
       pageable_input,
       "pin it (--input host), and give locked memory a limit that allows that (ulimit -l)"},
      {"link_width",
       {input},
       less_of_gpus("lanes of PCIe:", &Gpu::link_width),
       "reseat the card, or look at the root port"},
      {"link_generation",
       {input},
       less_of_gpus("generation of PCIe, at most:", &Gpu::largest_link_generation),
       "look at slot, riser and settings of the BIOS"},
      {"as_if_pageable",
       {input},
       copies_as_if_pageable,
       "pinned memory is copied by way of other buffers: look at the IOMMU, and at encryption of "
       "the VM's memory"},
      {"huge_pages",
       {memory},
       other_text("transparent huge pages:", huge_pages),
       "back the process, and the VM's memory on the host, by huge pages"},
  };
}

// Rules that show a specific cause come first, those that fit many layers last.
const std::vector<Rule>& rules() {
  using enum Layer;
  static const std::vector<Rule> all = [] {
    // Beside it nothing else of the machine counts.
    std::vector<Rule> rules{
        {"cpu_emulated",
         {cpu, clock, compute, memory, launch, input},
         emulated_cpu,
         "boot the VM by KVM (-accel kvm); on a host that is a VM itself, allow nested ones"}};
    for (const auto& more :
         {rules_of_communication(), rules_of_nics(), rules_of_devices(), rules_of_cpus()}) {
      rules.insert(rules.end(), more.begin(), more.end());
    }
    rules.push_back({"hypervisor",
                     {cpu, launch, input, memory, communication},
                     virtual_machine,
                     "look at pinned vCPUs, huge pages, the NUMA topology shown to the VM, and "
                     "pass-through of the IOMMU"});
    return rules;
  }();
  return all;
}

const char* where_to_look(Layer layer) {
  switch (layer) {
    case Layer::clock:
      return "watch clocks, power and temperature while it runs";
    case Layer::compute:
      return "look for another user of the device, or a smaller share of it";
    case Layer::memory:
      return "look for another user of the memory, ECC, and the node on which it lies";
    case Layer::cpu:
      return "look for what else runs on these CPUs: processes, interrupts, other VMs";
    case Layer::launch:
      return "look at the driver's version and the CPUs' power states";
    case Layer::input:
      return "look at the way of PCIe: IOMMU, switches, NUMA node of the pinned memory";
    case Layer::communication:
      return "time the links (nearmetal micro); communication.nccl of the reports has the "
             "transports";
  }
  throw std::logic_error("unnamed Layer");
}

}  // namespace

std::vector<KnownCause> known_causes(const ExplainedSide& base, const ExplainedSide& next,
                                     const std::vector<LayerShare>& layers) {
  std::vector<KnownCause> causes;
  std::set<std::string> told;
  for (const LayerShare& share : layers) {
    if (!share.counts() || *share.seconds <= 0) continue;
    bool found = false;
    for (const Rule& rule : rules()) {
      if (!rule.layers.contains(share.layer)) continue;
      const Seen seen = rule.look(base, next);
      if (!seen) continue;
      found = true;
      if (told.insert(rule.code).second) {
        causes.push_back({rule.code, share.layer, *seen, rule.hint});
      }
    }
    if (!found) {
      causes.push_back({"not_seen", share.layer, "nothing in the reports shows why",
                        where_to_look(share.layer)});
    }
  }
  return causes;
}

}  // namespace nearmetal
