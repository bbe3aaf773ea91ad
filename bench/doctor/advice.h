// The advice about a finding, which depends on where it was found.
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

/// The advice for the machine that was looked at; for all, where it is not known what it is.
std::string advice_for(const Checkup& checkup, const Advice& advice);

/// Advice on limits and files that a container gets from whoever starts it; both texts, if it is
/// not known whether this is a container.
std::string advice_by_container(const Checkup& checkup, const std::string& inside,
                                const std::string& outside);

/// The advice where bridges redirect what devices below them send one another.
std::string advice_on_acs(const Checkup& checkup);

/// The advice where the configuration of PCI devices ends after 64 bytes.
inline constexpr const char* as_root =
    "run doctor as root, in a container with CAP_SYS_ADMIN as well (docker: "
    "--cap-add=SYS_ADMIN)";

/// Whether bridges redirect peers is not readable. `where`: "between GPU 0 and mlx5_0".
Finding acs_unknown(const std::string& where);

/// The advice where a port runs at less than it could.
std::string advice_on_slow_port(const Checkup& checkup, const RdmaDevice& nic);

/// "252.1", of bits a second.
std::string gigabits(int64_t bits_per_second);

/// Nothing but switches is between two devices, so that their traffic need not pass a host bridge.
inline bool at_most_switches(const Maybe<PciDistance>& distance) {
  return distance && *distance <= PciDistance::pxb;
}

/// Each GPU: its state, clocks, link and place.
void add_gpu_findings(const Checkup& checkup, std::vector<Finding>& findings);

/// The ways between GPUs.
void add_peer_findings(const Checkup& checkup, std::vector<Finding>& findings);

/// NICs with RDMA: their ports, links, and the ways between them and GPUs.
void add_nic_findings(const Checkup& checkup, std::vector<Finding>& findings);

/// The PCIe links to and from NICs.
void add_nic_link_findings(const Checkup& checkup, std::vector<Finding>& findings);

/// Whether NICs can reach the memory of GPUs, and how far they are from them.
void add_gpu_direct_findings(const Checkup& checkup, std::vector<Finding>& findings);

}  // namespace nearmetal
