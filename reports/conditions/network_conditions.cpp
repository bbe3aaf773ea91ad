#include "reports/conditions/network_conditions.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "base/text.h"

namespace nearmetal {
namespace {

using Words = std::set<std::string>;

std::string list_of(const Words& words) { return joined({words.begin(), words.end()}); }

Words transports_of(const ExplainedSide& side) {
  Words names;
  for (const Run* run : side.runs) {
    if (!run->communication || !run->communication->nccl) continue;
    const std::vector<std::string>& found = run->communication->nccl->transports;
    names.insert(found.begin(), found.end());
  }
  return names;
}

std::string by_others(const Words& here, const Words& there) {
  return "NCCL goes by " + list_of(here) + " instead of " + list_of(there);
}

bool is_p2p(const std::string& transport) { return transport.starts_with("P2P"); }
bool is_shared(const std::string& transport) { return transport.starts_with("SHM"); }
bool is_within_host(const std::string& transport) {
  return is_p2p(transport) || is_shared(transport);
}
bool is_network(const std::string& transport) { return transport.starts_with("NET"); }
bool is_socket(const std::string& transport) { return transport.starts_with("NET/Socket"); }
bool is_rdma(const std::string& transport) {
  return is_network(transport) && !is_socket(transport);
}
bool reads_gpus(const std::string& transport) { return transport.find("GDRDMA") != transport.npos; }
bool is_rdma_by_host(const std::string& transport) {
  return is_rdma(transport) && !reads_gpus(transport);
}

// The base has a better transport and none that is worse, which the new side has.
using Transports = bool (*)(const std::string& transport);
Between worse(Transports is_better, Transports is_worse) {
  return [=](const ExplainedSide& base, const ExplainedSide& next) -> Seen {
    const Words there = transports_of(base), here = transports_of(next);
    if (std::ranges::none_of(there, is_better) || std::ranges::any_of(there, is_worse) ||
        std::ranges::none_of(here, is_worse)) {
      return {};
    }
    return by_others(here, there);
  };
}

const Between lost_p2p = worse(is_p2p, is_shared), lost_rdma = worse(is_rdma, is_socket),
              lost_shared_memory = worse(is_within_host, is_network);

// Others, in what the rest does not tell.
Seen other_transports(const ExplainedSide& base, const ExplainedSide& next) {
  if (lost_p2p(base, next) || lost_shared_memory(base, next) || rdma_by_host(base, next) ||
      lost_rdma(base, next)) {
    return {};
  }
  const Words there = transports_of(base), here = transports_of(next);
  if (there.empty() || here.empty() || there == here) return {};
  return by_others(here, there);
}

// Environment variables that keep NCCL from a transport or an algorithm.
Words variables_of(const Environment& machine) {
  Words set;
  for (const char* name : {"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE",
                           "NCCL_IB_DISABLE", "NCCL_NET", "NCCL_NVLS_ENABLE", "NCCL_ALGO"}) {
    const auto found = machine.variables.find(name);
    if (found != machine.variables.end()) set.insert(found->first + "=" + found->second);
  }
  return set;
}

Signs limiting_variables(const Environment& machine) {
  const Words set = variables_of(machine);
  return signs_naming({set.begin(), set.end()}, "variables steer NCCL: ");
}

Seen added_variables(const ExplainedSide& base, const ExplainedSide& next) {
  Words there, here, added;
  for (const Environment* machine : base.environments) there.merge(variables_of(*machine));
  for (const Environment* machine : next.environments) here.merge(variables_of(*machine));
  std::ranges::set_difference(here, there, std::inserter(added, added.end()));
  if (added.empty()) return {};
  return list_of(added);
}

bool is_active(const RdmaPort& port) { return port.state.value == "active"; }

bool has_active_port(const RdmaDevice& nic) { return std::ranges::any_of(nic.ports, is_active); }

// Earlier reports have the RDMA devices as names of those of network interfaces alone.
std::optional<double> active_nics(const Environment& machine) {
  const bool are_names_alone =
      machine.rdma.empty() &&
      std::ranges::any_of(machine.network, [](const auto& one) { return !!one.rdma_device; });
  if (are_names_alone) return std::nullopt;
  return static_cast<double>(std::ranges::count_if(machine.rdma, has_active_port));
}

Signs no_cross_memory_attach(const Environment& machine) {
  if (machine.limits.cross_memory_attach.value != false) return {};
  return {{"process_vm_readv is refused"}};
}

const Conditions of_exchange = {
    of_machine("no_cross_memory_attach", no_cross_memory_attach,
               "MPI's sums within a host copy twice, and may be slower",
               {"docker: --cap-add SYS_PTRACE, or another seccomp profile"}),
    of_both({"nccl_variables", "transport"}, exchange, limiting_variables, added_variables,
            "NCCL may leave its fastest transport or algorithm unused",
            {"unset them: they keep NCCL from its fastest transport"}, Urgency::note),
    of_sides(
        "p2p_lost", exchange, lost_p2p,
        {"P2P needs peer access: GPUs of one NVLink domain passed through together, ACS or ATS"}),
    of_sides("shared_memory_lost", exchange, lost_shared_memory,
             {"ranks of one host need a common IPC namespace, /dev/shm and host name; those of "
              "several VMs have the network alone: put more GPUs into each"}),
    of_sides("transport_chosen", exchange, other_transports,
             {"NCCL_DEBUG=INFO tells why: P2P needs peer access, shared memory one host, RDMA its "
              "NICs"}),
    of_sides("rdma_lost", exchange, lost_rdma,
             {"give the VM or container its NIC, a virtual function of it, and /dev/infiniband"}),
    of_sides("nics_fewer", network, less("RDMA devices with an active port:", active_nics),
             {"pass all NICs through, and look for ports that are down: rdma link"}),
};

struct PortOfNic {
  const RdmaDevice* nic;
  const RdmaPort* port;
};
using Ports = std::vector<PortOfNic>;

std::string name_of(const PortOfNic& of) {
  const std::string name = of.nic->name + " port " + std::to_string(of.port->number);
  return of.nic->interfaces.empty() ? name : name + " (" + joined(of.nic->interfaces) + ")";
}

std::string names_of(const Ports& ports) {
  return shortened(joined(transformed(ports, [](const auto& port) { return name_of(port); })));
}

bool is_infiniband(const RdmaPort& port) { return port.link_layer.value == "InfiniBand"; }
bool has_rate(const RdmaPort& port) { return is_active(port) && port.bits_per_second; }

template <class Wanted>
Ports ports_where(const Environment& machine, const Wanted& wanted) {
  Ports ports;
  for (const RdmaDevice& nic : machine.rdma) {
    for (const RdmaPort& port : nic.ports) {
      if (wanted(port)) ports.push_back({&nic, &port});
    }
  }
  return ports;
}

// The names that commands of the advice take, where there is one of each.
std::map<std::string, std::string> names_in_commands(const Ports& ports) {
  std::set<std::string> devices, interfaces;
  for (const PortOfNic& of : ports) {
    devices.insert(of.nic->name);
    interfaces.insert(of.nic->interfaces.begin(), of.nic->interfaces.end());
  }
  std::map<std::string, std::string> names;
  if (devices.size() == 1) names["DEVICE"] = *devices.begin();
  if (interfaces.size() == 1) names["INTERFACE"] = *interfaces.begin();
  return names;
}

// "252.1", of bits a second.
std::string gigabits(int64_t bits_per_second) {
  return shortest(1e-9 * static_cast<double>(bits_per_second), 4);
}

template <bool infiniband>
Signs ports_down(const Environment& machine) {
  const Ports down = ports_where(machine, [](const RdmaPort& port) {
    return port.state && !is_active(port) && is_infiniband(port) == infiniband;
  });
  if (down.empty()) return {};
  const bool any_up = !ports_where(machine, is_active).empty();
  const RdmaPort& first = *down.front().port;
  const std::string state =
      *first.state + (first.physical_state ? " (" + *first.physical_state + ")" : "");
  return {{.seen = names_of(down) + (down.size() == 1 ? " is " : " are not active, the first is ") +
                   state,
           .severity = any_up ? Urgency::note : Urgency::warning,
           .why = any_up ? "NCCL leaves it out, and the others carry what it would"
                         : "no port is up: NCCL goes by TCP sockets, at a fraction of the rate",
           .names = names_in_commands(down)}};
}

// Ports of one model are compared, as others may have been bought slower.
Signs slower_ports(const Environment& machine) {
  const Ports active = ports_where(machine, has_rate);
  Signs signs;
  for (const PortOfNic& of : active) {
    int64_t rate = 0;
    for (const PortOfNic& other : active) {
      const bool is_alike = other.nic->device_id.value == of.nic->device_id.value;
      if (is_alike) rate = std::max(rate, *other.port->bits_per_second);
    }
    if (*of.port->bits_per_second >= rate) continue;
    signs.push_back({.seen = name_of(of) + " runs at " + gigabits(*of.port->bits_per_second) +
                             " Gb/s, others of its model at " + gigabits(rate),
                     .names = names_in_commands({of})});
  }
  return signs;
}

std::optional<double> fastest_network(const Environment& machine) {
  std::optional<double> fastest;
  const auto take = [&](const Maybe<int64_t>& rate) {
    if (rate) fastest = std::max(fastest.value_or(0), static_cast<double>(*rate));
  };
  for (const NetworkInterface& one : machine.network) {
    if (one.state.value == "up") take(one.bits_per_second);
  }
  for (const PortOfNic& of : ports_where(machine, has_rate)) take(of.port->bits_per_second);
  return fastest;
}

std::string network_rate(double bits_per_second) { return three_digits(1e-9 * bits_per_second); }

bool is_v2(const RdmaGid& gid) { return gid.type.value == "RoCE v2"; }
bool has_roce_v2(const RdmaPort& port) { return std::ranges::any_of(port.gids, is_v2); }
bool is_active_roce(const RdmaPort& port) {
  return is_active(port) && port.link_layer.value == "Ethernet";
}

// An index that was found right on another machine, or before the interface had another address.
Signs wrong_gid_index(const Environment& machine) {
  const auto named = machine.variables.find("NCCL_IB_GID_INDEX");
  if (named == machine.variables.end() || named->second.starts_with('-')) return {};
  const Ports wrong = ports_where(machine, [&](const RdmaPort& port) {
    const bool is_right = std::ranges::any_of(port.gids, [&](const RdmaGid& gid) {
      return std::to_string(gid.index) == named->second && is_v2(gid);
    });
    const bool all_listed = port.gids.size() < most_listed_gids;
    return is_active_roce(port) && !is_right && all_listed && has_roce_v2(port);
  });
  if (wrong.empty()) return {};
  const PortOfNic& first = wrong.front();
  const int64_t right = std::ranges::find_if(first.port->gids, is_v2)->index;
  return {{.seen = "NCCL_IB_GID_INDEX=" + named->second + " names no GID of type RoCE v2 of " +
                   names_of(wrong),
           .names = {{"INDEX", std::to_string(right)}, {"DEVICE", first.nic->name}}}};
}

Signs ports_without_gid(const Environment& machine) {
  const Ports without = ports_where(
      machine, [](const RdmaPort& port) { return is_active_roce(port) && !has_roce_v2(port); });
  if (without.empty()) return {};
  return {{.seen = names_of(without) + " has no GID of type RoCE v2",
           .names = names_in_commands(without)}};
}

// The data rate of the link in one direction: 128 of 130 bits are data; before PCIe 3, 8 of 10.
std::optional<int64_t> pcie_bits_per_second(const RdmaDevice& nic) {
  if (!nic.link_generation || !nic.link_width) return std::nullopt;
  const int64_t generation = *nic.link_generation;
  const double lane = 1e9 * pcie_gigatransfers.at(generation - 1);
  const double data = generation < 3 ? 0.8 : 128. / 130;
  return static_cast<int64_t>(lane * data * static_cast<double>(*nic.link_width));
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

Signs slow_links(const Environment& machine) {
  Signs signs;
  for (const RdmaDevice& nic : machine.rdma) {
    if (!is_below(nic.link_width, nic.largest_link_width) &&
        !is_below(nic.link_generation, nic.largest_link_generation)) {
      continue;
    }
    const int64_t needed = bits_per_second_of_ports(nic);
    const std::optional<int64_t> carried = pcie_bits_per_second(nic);
    const bool suffices = carried && *carried >= needed;
    signs.push_back({.seen = nic.name + " is linked by " +
                             link_text(nic.link_generation, nic.link_width) + " and could be by " +
                             link_text(nic.largest_link_generation, nic.largest_link_width),
                     .severity = suffices ? Urgency::note : Urgency::warning,
                     .why = carried ? "PCIe carries " + gigabits(*carried) +
                                          " Gb/s then, and its ports " + gigabits(needed)
                                    : ""});
  }
  return signs;
}

bool is_slower_than_another(const Environment& machine, const RdmaDevice& nic) {
  return std::ranges::any_of(machine.rdma, [&](const RdmaDevice& other) {
    return other.device_id == nic.device_id &&
           bits_per_second_of_ports(other) > bits_per_second_of_ports(nic);
  });
}

// Ports that are all slow have none of their model to be compared with.
Signs ports_below_links(const Environment& machine) {
  Signs signs;
  for (const RdmaDevice& nic : machine.rdma) {
    const std::optional<int64_t> carried = pcie_bits_per_second(nic);
    const int64_t used = bits_per_second_of_ports(nic);
    if (used == 0 || !std::ranges::all_of(nic.ports, has_rate)) continue;
    if (!carried || 2 * used >= *carried) continue;
    if (is_slower_than_another(machine, nic)) continue;  // another finding
    signs.push_back({.seen = nic.name + " runs at " + gigabits(used) + " Gb/s, and its link of " +
                             link_text(nic.link_generation, nic.link_width) + " carries " +
                             gigabits(*carried),
                     .names = {{"DEVICE", nic.name}}});
  }
  return signs;
}

Signs without_file(const Environment& machine) {
  std::vector<std::string> names;
  for (const RdmaDevice& nic : machine.rdma) {
    if (nic.device_file.value == false) names.push_back(nic.name);
  }
  return signs_naming(names, "RDMA devices have no file in /dev/infiniband: ");
}

// Names on a host, NIC, are not those in its VM.
Advice advice_on_slow_port() {
  const std::string agreed =
      " shows what was agreed; of other networks: ethtool), and at the switch's port";
  const std::string of_host = "on the host: look at cable and transceiver (mlxlink -d NIC" + agreed;
  return {
      of_host + "; of a virtual function also at its limit: ip link set PARENT vf N max_tx_rate 0",
      of_host +
          "; of a virtual function also at the rate that vSphere set its physical NIC to (esxcli "
          "network nic list)",
      "look at cable and transceiver (mlxlink -d DEVICE" + agreed};
}

const std::string interface_up = "ip link set INTERFACE up";
const std::string up_in_vm =
    "in the VM: " + interface_up +
    "; on the host: the cable, the switch's port, and for a virtual function";
const std::string give_address =
    "give INTERFACE an IP address, from which GIDs are made; with NVIDIA's tools: cma_roce_mode -d "
    "DEVICE -p PORT -m 2; show_gids lists them";
const std::string unset_index =
    "unset it: NCCL 2.21 and later find the GID themselves; or take an index of RoCE v2, which is "
    "INDEX at DEVICE (show_gids lists them)";
const std::string load =
    "modprobe ib_uverbs, and at each start by /etc/modules-load.d (rdma-core does so)";
const std::string load_in_vm = "in the VM: " + load;
const std::string index_in_vm = unset_index + ": a VM has other indices than its host";

const Conditions of_nics = {
    of_machine(
        "rdma_port_down", ports_down<true>, "",
        {"look at the cable and the switch's port, and whether a subnet manager runs (opensm, or "
         "that of the switch): a port that is linked up and not active waits for it"}),
    of_machine("rdma_port_down", ports_down<false>, "",
               {up_in_vm + ": ip link set PARENT vf N state auto",
                up_in_vm + " the uplink of its physical NIC",
                interface_up + ", and look at the cable and the switch's port"}),
    of_both({"roce_gid_index"}, network, wrong_gid_index, {},
            "connections fail, or go by RoCE v1, which is not routed",
            {index_in_vm, index_in_vm, unset_index}),
    of_both({"roce_without_gid"}, network, ports_without_gid, {},
            "RoCE v1 is not routed, and NCCL looks for v2: connections fail or go by TCP sockets",
            {"in the VM: " + give_address,
             "in the VM: " + give_address +
                 "; in ESXi the port group's VLAN must be the one that the switch has",
             give_address + "; a container needs the interface in its own network namespace, or "
                            "that of the host"}),
    of_both({"nic_link_slow"}, network, slow_links, {}, "PCIe may carry less than its ports",
            on_host("reseat it, or look at the slot, its bifurcation and the BIOS")),
    of_machine("rdma_port_below_link", ports_below_links,
               "jobs over several hosts get what the port agreed on, and the NIC may be capable of "
               "more; where NIC or network are of that rate, there is nothing to do",
               advice_on_slow_port(), Urgency::note),
    of_both({"rdma_file_missing", "device_files_missing"}, network, without_file, {},
            "programs here cannot use them: NCCL and MPI go by TCP sockets",
            {load_in_vm, load_in_vm, load,
             "docker: --device=/dev/infiniband; Kubernetes: the resource of an RDMA device plugin "
             "(rdma/...), in all pods"}),
    of_both({"rdma_port_slow", "network_slower"}, network, slower_ports,
            less("fastest network of a system, in Gbit/s:", fastest_network, network_rate),
            "a ring over all NICs is as fast as the slowest", advice_on_slow_port()),
};

}  // namespace

const Conditions& exchange_conditions() { return of_exchange; }
const Conditions& nic_conditions() { return of_nics; }

bool uses_network(const ExplainedSide& side) {
  for (const Run* run : side.runs) {
    std::set<int64_t> systems;
    for (const Rank& rank : run->ranks) systems.insert(rank.environment);
    if (systems.size() > 1) return true;
  }
  return std::ranges::any_of(transports_of(side), is_network);
}

Seen rdma_by_host(const ExplainedSide& base, const ExplainedSide& next) {
  return worse(reads_gpus, is_rdma_by_host)(base, next);
}

}  // namespace nearmetal
