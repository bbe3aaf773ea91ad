// Conditions of GPUs: state, clocks, links, place, and the ways between them.
#pragma once

#include "reports/conditions/condition.h"

namespace nearmetal {

/// Their signs are each of one GPU.
const Conditions& gpu_conditions();

/// Between GPUs of one machine.
const Conditions& peer_conditions();

/// The advice where bridges redirect what devices below them send one another.
Advice advice_on_acs();

/// The advice where the configuration of PCI devices ends after 64 bytes.
inline constexpr const char* as_root =
    "run doctor as root, in a container with CAP_SYS_ADMIN as well (docker: "
    "--cap-add=SYS_ADMIN)";

/// Whether bridges redirect peers is not readable. `where`: "between ", "above ".
Signs unknown_acs_signs(const std::string& where, const std::vector<std::string>& names);
Condition unknown_acs(Signs (*here)(const Environment&));

/// Nothing but switches is between two devices, so that their traffic need not pass a host bridge.
inline bool at_most_switches(const Maybe<PciDistance>& distance) {
  return distance && *distance <= PciDistance::pxb;
}

}  // namespace nearmetal
