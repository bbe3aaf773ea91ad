#include <algorithm>
#include <map>
#include <set>

#include "bench/doctor/advice.h"
#include "bench/environment/rdma.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

struct PortOfNic {
  const RdmaDevice* nic;
  const RdmaPort* port;
};

std::string name_of(const PortOfNic& of) {
  std::string name = of.nic->name + " port " + std::to_string(of.port->number);
  return of.nic->interfaces.empty() ? name : name + " (" + joined(of.nic->interfaces) + ")";
}

std::string names_of(const std::vector<PortOfNic>& ports) {
  std::vector<std::string> names;
  for (const PortOfNic& port : ports) names.push_back(name_of(port));
  return shortened(joined(names));
}

bool is_active(const RdmaPort& port) { return port.state && *port.state == "active"; }

std::vector<PortOfNic> ports_where(const Checkup& checkup, bool (*wanted)(const RdmaPort&)) {
  std::vector<PortOfNic> ports;
  for (const RdmaDevice& nic : checkup.environment.rdma) {
    for (const RdmaPort& port : nic.ports) {
      if (wanted(port)) ports.push_back({&nic, &port});
    }
  }
  return ports;
}

// The name that commands take, where there is one of them; else what stands for each.
std::string one_of(const std::set<std::string>& names, const std::string& otherwise) {
  return names.size() == 1 ? *names.begin() : otherwise;
}

std::string interface_of(const std::vector<PortOfNic>& ports) {
  std::set<std::string> names;
  for (const PortOfNic& of : ports) {
    names.insert(of.nic->interfaces.begin(), of.nic->interfaces.end());
  }
  return one_of(names, "INTERFACE");
}

std::string device_of(const std::vector<PortOfNic>& ports) {
  std::set<std::string> names;
  for (const PortOfNic& of : ports) names.insert(of.nic->name);
  return one_of(names, "DEVICE");
}

std::string fix_of_ports(const Checkup& checkup, const std::vector<PortOfNic>& down) {
  const RdmaPort& first = *down.front().port;
  if (first.link_layer && *first.link_layer == "InfiniBand") {
    return "look at the cable and the switch's port, and whether a subnet manager runs (opensm, or "
           "that of the switch): a port that is linked up and not active waits for it";
  }
  const std::string up = "ip link set " + interface_of(down) + " up";
  return advice_for(checkup, {"in the VM: " + up +
                                  "; on the host: the cable, the switch's port, and for a virtual "
                                  "function: ip link set PARENT vf N state auto",
                              "in the VM: " + up +
                                  "; on the host: the cable, the switch's port, and for a virtual "
                                  "function the uplink of its physical NIC",
                              up + ", and look at the cable and the switch's port"});
}

void add_ports_down(const Checkup& checkup, std::vector<Finding>& findings) {
  const auto down =
      ports_where(checkup, [](const RdmaPort& port) { return port.state && !is_active(port); });
  if (down.empty()) return;
  const bool any_up = !ports_where(checkup, is_active).empty();
  const RdmaPort& first = *down.front().port;
  const std::string state =
      *first.state + (first.physical_state ? " (" + *first.physical_state + ")" : "");
  findings.push_back(
      {any_up ? Urgency::note : Urgency::warning, "rdma_port_down",
       names_of(down) + (down.size() == 1 ? " is " : " are not active, the first is ") + state,
       any_up ? "NCCL leaves it out, and the others carry what it would"
              : "no port is up: NCCL goes by TCP sockets, at a fraction of the rate",
       fix_of_ports(checkup, down)});
}

// Ports of one model are compared, as others may have been bought slower.
void add_slow_ports(const Checkup& checkup, std::vector<Finding>& findings) {
  std::map<std::string, int64_t> fastest;  // by device id
  const auto active = ports_where(
      checkup, [](const RdmaPort& port) { return is_active(port) && port.bits_per_second; });
  for (const PortOfNic& of : active) {
    int64_t& rate = fastest[of.nic->device_id.value.value_or("")];
    rate = std::max(rate, *of.port->bits_per_second);
  }
  for (const PortOfNic& of : active) {
    const int64_t rate = fastest[of.nic->device_id.value.value_or("")];
    if (*of.port->bits_per_second >= rate) continue;
    findings.push_back({Urgency::warning, "rdma_port_slow",
                        name_of(of) + " runs at " + gigabits(*of.port->bits_per_second) +
                            " Gb/s, others of its model at " + gigabits(rate),
                        "a ring over all NICs is as fast as the slowest",
                        advice_on_slow_port(checkup, *of.nic)});
  }
}

bool has_roce_v2(const RdmaPort& port) {
  return std::ranges::any_of(port.gids,
                             [](const RdmaGid& gid) { return gid.type && *gid.type == "RoCE v2"; });
}

bool is_active_roce(const RdmaPort& port) {
  return is_active(port) && port.link_layer && *port.link_layer == "Ethernet";
}

std::string fix_of_gid_index(const Checkup& checkup, const RdmaDevice& nic, const RdmaPort& port) {
  const auto right = std::ranges::find_if(
      port.gids, [](const RdmaGid& gid) { return gid.type && *gid.type == "RoCE v2"; });
  const std::string unset =
      "unset it: NCCL 2.21 and later find the GID themselves; or take an index of RoCE v2, which "
      "is " +
      std::to_string(right->index) + " at " + nic.name + " (show_gids lists them)";
  const std::string of_vm = unset + ": a VM has other indices than its host";
  return advice_for(checkup, {of_vm, of_vm, unset});
}

// An index that was found right on another machine, or before the interface had another address.
void add_gid_index(const Checkup& checkup, std::vector<Finding>& findings) {
  const auto& variables = checkup.environment.variables;
  const auto named = variables.find("NCCL_IB_GID_INDEX");
  if (named == variables.end() || named->second.starts_with('-')) return;
  std::vector<PortOfNic> wrong;
  for (const PortOfNic& of : ports_where(checkup, is_active_roce)) {
    const bool is_right = std::ranges::any_of(of.port->gids, [&](const RdmaGid& gid) {
      return std::to_string(gid.index) == named->second && gid.type && *gid.type == "RoCE v2";
    });
    const bool all_listed = of.port->gids.size() < most_listed_gids;
    if (!is_right && all_listed && has_roce_v2(*of.port)) wrong.push_back(of);
  }
  if (wrong.empty()) return;
  findings.push_back(
      {Urgency::warning, "roce_gid_index",
       "NCCL_IB_GID_INDEX=" + named->second + " names no GID of type RoCE v2 of " + names_of(wrong),
       "connections fail, or go by RoCE v1, which is not routed",
       fix_of_gid_index(checkup, *wrong.front().nic, *wrong.front().port)});
}

void add_roce(const Checkup& checkup, std::vector<Finding>& findings) {
  add_gid_index(checkup, findings);
  const auto without = ports_where(
      checkup, [](const RdmaPort& port) { return is_active_roce(port) && !has_roce_v2(port); });
  if (without.empty()) return;
  const std::string address = "give " + interface_of(without) +
                              " an IP address, from which GIDs are made; with NVIDIA's tools: "
                              "cma_roce_mode -d " +
                              device_of(without) + " -p PORT -m 2; show_gids lists them";
  findings.push_back(
      {Urgency::warning, "roce_without_gid", names_of(without) + " has no GID of type RoCE v2",
       "RoCE v1 is not routed, and NCCL looks for v2: connections fail or go by TCP sockets",
       advice_for(checkup, {"in the VM: " + address,
                            "in the VM: " + address +
                                "; in ESXi the port group's VLAN must be "
                                "the one that the switch has",
                            address + "; a container needs the interface in its own network "
                                      "namespace, or that of the host"})});
}

void add_device_files(const Checkup& checkup, std::vector<Finding>& findings) {
  std::vector<std::string> names;
  for (const RdmaDevice& nic : checkup.environment.rdma) {
    if (nic.device_file && !*nic.device_file) names.push_back(nic.name);
  }
  if (names.empty()) return;
  const std::string load =
      "modprobe ib_uverbs, and at each start by /etc/modules-load.d (rdma-core does so)";
  findings.push_back(
      {Urgency::warning, "rdma_file_missing",
       "the kernel has " + shortened(joined(names)) +
           ", but /dev/infiniband has no "
           "file of it",
       "programs here cannot use it: NCCL and MPI go by TCP sockets",
       advice_by_container(
           checkup,
           "docker: --device=/dev/infiniband; Kubernetes: the resource of an RDMA "
           "device plugin (rdma/...), in all pods",
           advice_for(checkup, {"in the VM: " + load, "in the VM: " + load, load}))});
}

}  // namespace

void add_nic_findings(const Checkup& checkup, std::vector<Finding>& findings) {
  const std::vector<RdmaDevice>& nics = checkup.environment.rdma;
  if (nics.empty()) return;
  const size_t before = findings.size();
  add_ports_down(checkup, findings);
  add_slow_ports(checkup, findings);
  add_roce(checkup, findings);
  add_nic_link_findings(checkup, findings);
  add_device_files(checkup, findings);
  add_gpu_direct_findings(checkup, findings);
  if (findings.size() > before) return;
  findings.push_back(
      {Urgency::ok, "nics", counted(std::ssize(nics), "RDMA device") + ", no findings", "", ""});
}

}  // namespace nearmetal
