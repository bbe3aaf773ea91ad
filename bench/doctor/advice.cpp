#include "bench/doctor/advice.h"

#include "reports/text/text.h"

namespace nearmetal {

namespace {

// Advice that is the same for several kinds is given once.
std::string advice_for_all(const Advice& advice) {
  if (advice.kvm == advice.esxi && advice.kvm == advice.bare_metal) return advice.kvm;
  const std::string bare_metal = "; on bare metal: " + advice.bare_metal;
  if (advice.kvm == advice.esxi) return "in a VM: " + advice.kvm + bare_metal;
  return "with KVM: " + advice.kvm + "; with ESXi: " + advice.esxi + bare_metal;
}

}  // namespace

std::string advice_for(const Checkup& checkup, const Advice& advice) {
  const Virtualisation& found = checkup.environment.virtualisation;
  if (is_vm(checkup)) {
    return found.hypervisor && *found.hypervisor == "vmware" ? advice.esxi : advice.kvm;
  }
  return is_bare_metal(checkup) ? advice.bare_metal : advice_for_all(advice);
}

std::string advice_by_container(const Checkup& checkup, const std::string& inside,
                                const std::string& outside) {
  const Maybe<std::string>& container = checkup.environment.virtualisation.container;
  if (!container) return outside + "; in a container: " + inside;
  return *container == "none" ? outside : inside;
}

std::string advice_on_acs(const Checkup& checkup) {
  const std::string translated =
      "leave ACS on, which keeps guests apart; turn on ATS at the NICs (mlxconfig -d DEVICE set "
      "ATS_ENABLED=true) and direct translated P2P (DirectTrans+ in lspci -vvv) at the bridges "
      "above GPUs and NICs";
  return advice_for(
      checkup,
      {"on the host: " + translated,
       "pciPassthru.RelaxACSforP2P = TRUE in the VM's configuration; on the host: " + translated,
       "switch ACS off in the BIOS, or at each start for the bridges above GPUs and NICs: "
       "setpci -s BRIDGE ECAP_ACS+0x6.w=0000; where this machine is to have guests: " +
           translated});
}

std::string advice_on_slow_port(const Checkup& checkup, const RdmaDevice& nic) {
  const auto agreed = [](const std::string& device) {
    return "look at cable, transceiver and the switch's port (mlxlink -d " + device +
           " shows what was agreed)";
  };
  const std::string of_host = "on the host: " + agreed("DEVICE");
  return advice_for(
      checkup,
      {of_host + "; of a virtual function also at its limit: ip link set PARENT vf N max_tx_rate 0",
       of_host + "; of a virtual function also at the rate that vSphere set its physical NIC to "
                 "(esxcli network nic list)",
       agreed(nic.name)});
}

std::string gigabits(int64_t bits_per_second) {
  return shortest(1e-9 * static_cast<double>(bits_per_second), 4);
}

Finding acs_unknown(const std::string& where) {
  return {Urgency::note, "acs_unknown",
          "PCIe ACS of the bridges " + where +
              " is not readable without root: they may redirect what peers send one another",
          "redirected traffic goes up to the root complex and back, not through the switch",
          as_root};
}

}  // namespace nearmetal
