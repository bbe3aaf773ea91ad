// What to do about a finding, which depends on where it was found.
#pragma once

#include <string>

#include "bench/doctor/diagnose.h"

namespace nearmetal {

inline bool is_vm(const Checkup& checkup) {
  const Maybe<MachineKind>& machine = checkup.environment.virtualisation.machine;
  return machine && *machine == MachineKind::vm;
}

inline bool is_bare_metal(const Checkup& checkup) {
  const Maybe<MachineKind>& machine = checkup.environment.virtualisation.machine;
  return machine && *machine == MachineKind::bare_metal;
}

struct Advice {
  std::string kvm;  // and of hypervisors other than ESXi
  std::string esxi;
  std::string bare_metal;
};

/// For the machine that was looked at; for all, where it is not known what it is.
std::string advice_for(const Checkup& checkup, const Advice& advice);

/// Where bridges redirect what devices below them send one another.
std::string advice_on_acs(const Checkup& checkup);

/// The ways between GPUs.
void add_peer_findings(const Checkup& checkup, std::vector<Finding>& findings);

/// NICs with RDMA: their ports, links, and the ways between them and GPUs.
void add_nic_findings(const Checkup& checkup, std::vector<Finding>& findings);

/// Whether NICs can reach the memory of GPUs, and how far they are from them.
void add_gpu_direct_findings(const Checkup& checkup, std::vector<Finding>& findings);

}  // namespace nearmetal
