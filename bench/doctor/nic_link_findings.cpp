#include <algorithm>

#include "bench/doctor/advice.h"
#include "bench/environment/system_files.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

// The data rate of the link in one direction: 128 of 130 bits are data; before PCIe 3, 8 of 10.
Maybe<int64_t> pcie_bits_per_second(const RdmaDevice& nic) {
  if (!nic.link_generation || !nic.link_width) return Unknown{"its link is not known"};
  const int64_t generation = *nic.link_generation;
  const double lane = 1e9 * pcie_gigatransfers.at(generation - 1);
  const double data = generation < 3 ? 0.8 : 128. / 130;
  return static_cast<int64_t>(lane * data * static_cast<double>(*nic.link_width));
}

bool is_active_at_known_rate(const RdmaPort& port) {
  return port.state && *port.state == "active" && port.bits_per_second;
}

int64_t bits_per_second_of_ports(const RdmaDevice& nic) {
  int64_t sum = 0;
  for (const RdmaPort& port : nic.ports) sum += port.bits_per_second.value.value_or(0);
  return sum;
}

std::string link_text(const Maybe<int64_t>& generation, const Maybe<int64_t>& width) {
  return "PCIe " + (generation ? std::to_string(*generation) : "?") + " x" +
         (width ? std::to_string(*width) : "?");
}

bool is_below(const Maybe<int64_t>& value, const Maybe<int64_t>& largest) {
  return value && largest && *value < *largest;
}

void add_slow_links(const Checkup& checkup, std::vector<Finding>& findings) {
  for (const RdmaDevice& nic : checkup.environment.rdma) {
    if (!is_below(nic.link_width, nic.largest_link_width) &&
        !is_below(nic.link_generation, nic.largest_link_generation)) {
      continue;
    }
    const int64_t needed = bits_per_second_of_ports(nic);
    const Maybe<int64_t> carried = pcie_bits_per_second(nic);
    const bool suffices = carried && *carried >= needed;
    const std::string reseat = "reseat it, or look at the slot, its bifurcation and the BIOS";
    findings.push_back(
        {suffices ? Urgency::note : Urgency::warning, "nic_link_slow",
         nic.name + " is linked by " + link_text(nic.link_generation, nic.link_width) +
             " and could be by " + link_text(nic.largest_link_generation, nic.largest_link_width),
         carried ? "PCIe carries " + gigabits(*carried) + " Gb/s then, and its ports " +
                       gigabits(needed)
                 : "PCIe may carry less than its ports",
         advice_for(checkup, {"on the host: " + reseat, "on the host: " + reseat, reseat})});
  }
}

bool is_slower_than_another(const Checkup& checkup, const RdmaDevice& nic) {
  return std::ranges::any_of(checkup.environment.rdma, [&](const RdmaDevice& other) {
    return other.device_id == nic.device_id &&
           bits_per_second_of_ports(other) > bits_per_second_of_ports(nic);
  });
}

// Ports that are all slow have none of their model to be compared with.
void add_ports_below_links(const Checkup& checkup, std::vector<Finding>& findings) {
  for (const RdmaDevice& nic : checkup.environment.rdma) {
    const Maybe<int64_t> carried = pcie_bits_per_second(nic);
    const bool all_run = std::ranges::all_of(nic.ports, is_active_at_known_rate);
    const int64_t used = bits_per_second_of_ports(nic);
    if (used == 0 || !all_run || !carried || 2 * used >= *carried) continue;
    if (is_slower_than_another(checkup, nic)) continue;  // another finding
    findings.push_back(
        {Urgency::note, "rdma_port_below_link",
         nic.name + " runs at " + gigabits(used) + " Gb/s, and its link of " +
             link_text(nic.link_generation, nic.link_width) + " carries " + gigabits(*carried),
         "jobs over several hosts get what the port agreed on, and the NIC may be capable of more",
         "nothing to do where the NIC or the network is of that rate; else " +
             advice_on_slow_port(checkup, nic)});
  }
}

}  // namespace

void add_nic_link_findings(const Checkup& checkup, std::vector<Finding>& findings) {
  add_slow_links(checkup, findings);
  add_ports_below_links(checkup, findings);
}

}  // namespace nearmetal
