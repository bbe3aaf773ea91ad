// The hosts of a plan as a process on each of them finds them, before a job of several starts.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "comm/layout/layout.h"
#include "comm/layout/placement.h"

namespace nearmetal {

struct InterfaceAddress {
  std::string interface;
  std::string address;  // IPv4
  int64_t prefix_bits = 0;

  bool operator==(const InterfaceAddress&) const = default;
};

struct HostFacts {
  int64_t rank = 0;  // the index of the host among those asked
  std::string host_name;
  std::string boot_id;                           // empty where the kernel does not say
  std::vector<InterfaceAddress> addresses;       // but for the loopback's
  std::map<std::string, std::string> variables;  // that steer NCCL, UCX, libfabric and CUDA
};

/// Whether a variable of the environment decides how ranks exchange or compute: those of NCCL, UCX,
/// libfabric and CUDA.
bool steers_ranks(const std::string& variable);

/// The option of `doctor` that prints the facts of its machine alone, as a line of JSON.
inline constexpr const char* host_facts_flag = "--host-facts-line";

/// Of this machine, by its kernel and the environment of this process.
HostFacts own_host_facts();

/// One line of JSON.
std::string to_json_line(const HostFacts& facts);

/// A job with one rank on each host.
PlacedJob one_rank_each(const std::vector<Host>& hosts, const Launcher& launcher);

/// What a process that mpirun starts on each host prints, in their order; empty where one does not.
/// Takes a second, half a minute where a host does not answer.
std::vector<HostFacts> ask_hosts(const std::vector<Host>& hosts, const Launcher& launcher);

/// The names of those that do not answer, found by asking halves of them.
std::vector<std::string> silent_hosts(const std::vector<Host>& hosts, const Launcher& launcher);

/// One line that names two hosts that are one machine; empty: there are none.
std::string hosts_of_one_machine(const std::vector<Host>& hosts, std::span<const HostFacts> facts);

/// "host 'a' has no address 10.0.0.1, by which it is reached", for each address that is none of the
/// host's own: a proxy's, or a router's that translates.
std::vector<std::string> foreign_addresses(const std::vector<Host>& hosts,
                                           std::span<const HostFacts> facts);

/// An address that several hosts have, as bridges of containers and VMs do: on its network each
/// would reach itself.
struct SharedAddress {
  InterfaceAddress address;        // as the first of these hosts has it
  std::vector<std::string> hosts;  // names

  /// "172.17.0.0/16"
  std::string network() const;
};
std::vector<SharedAddress> shared_addresses(std::span<const HostFacts> facts);

/// "docker0 (172.17.0.1/16) is the same on host-a, host-b".
std::string text_of(const SharedAddress& shared);

/// "NCCL_DEBUG is INFO on host-a, not set on host-b", for each variable that is not alike on all.
std::vector<std::string> unlike_variables(std::span<const HostFacts> facts);

}  // namespace nearmetal
