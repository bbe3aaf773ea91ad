#include "reports/conditions/exchange_conditions.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "reports/text/text.h"

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
using Kind = bool (*)(const std::string& transport);
Between worse(Kind is_better, Kind is_worse) {
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

bool has_active_port(const RdmaDevice& nic) {
  return std::ranges::any_of(nic.ports,
                             [](const RdmaPort& port) { return port.state.value == "active"; });
}

// Earlier reports have the RDMA devices as names of those of network interfaces alone.
std::optional<double> active_nics(const Environment& machine) {
  const bool are_names_alone =
      machine.rdma.empty() &&
      std::ranges::any_of(machine.network, [](const auto& one) { return !!one.rdma_device; });
  if (are_names_alone) return std::nullopt;
  return static_cast<double>(std::ranges::count_if(machine.rdma, has_active_port));
}

const Conditions of_exchange = {
    of_both({"nccl_variables", "transport"}, exchange, Urgency::note, limiting_variables,
            added_variables, "NCCL may leave its fastest transport or algorithm unused",
            {"unset them: they keep NCCL from its fastest transport"}),
    of_sides(
        "p2p_lost", exchange, lost_p2p,
        {"P2P needs peer access: GPUs of one NVLink domain passed through together, ACS or ATS"}),
    of_sides(
        "shared_memory_lost", exchange, lost_shared_memory,
        {"ranks of one host need a common IPC namespace, /dev/shm and host name; those of several "
         "VMs have the network alone: put more GPUs into each"}),
    of_sides("transport_chosen", exchange, other_transports,
             {"NCCL_DEBUG=INFO tells why: P2P needs peer access, shared memory one host, RDMA its "
              "NICs"}),
    of_sides("rdma_lost", exchange, lost_rdma,
             {"give the VM or container its NIC, a virtual function of it, and /dev/infiniband"}),
    of_sides("nics_fewer", network, less("RDMA devices with an active port:", active_nics),
             {"pass all NICs through, and look for ports that are down: rdma link"}),
};

}  // namespace

const Conditions& exchange_conditions() { return of_exchange; }

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
