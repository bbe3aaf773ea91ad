// This machine as found: evidence for the report.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "reports/document/types.h"

namespace nearmetal {

/// Where evidence comes from that is in no file. Tests put answers of their own here.
struct SystemQueries {
  /// Leaf 0x40000000 of CPUID, which is a hypervisor's where leaf 1 says that there is one.
  std::function<Maybe<std::string>()> cpuid_signature;
  /// The answer of systemd-detect-virt to --vm or --container.
  std::function<Maybe<std::string>(const char* question)> detect_virt;
  /// A variable of the environment; empty: not set.
  std::function<std::string(const char* name)> variable;
};

/// The queries of this machine.
SystemQueries system_queries();

/// `hypervisor_cpu_flag` as the kernel shows it. `root` is the folder of the system's files.
Virtualisation find_virtualisation(const std::filesystem::path& root, const SystemQueries& queries,
                                   const Maybe<bool>& hypervisor_cpu_flag);

/// Whether a module that lets NICs read the memory of GPUs (GPUDirect RDMA) is loaded:
/// nvidia_peermem, or its forerunner nv_peer_mem.
Maybe<bool> peer_memory_module(const std::filesystem::path& root);

/// Whether the memory of GPUs can be shared with NICs as a dma-buf, by the flavour of the driver's
/// module and the version of the kernel.
Maybe<bool> dma_buf_by_kernel(const std::filesystem::path& root);

/// Where what was found contradicts what the user says that it is; empty: nowhere.
std::string contradiction(MachineKind claim, const Virtualisation& found);

/// Host, processor, memory, limits and the environment variables that steer the libraries. What
/// cannot be found out is unknown, with the reason. `root` is the folder of the system's files, "/"
/// but in tests.
Environment find_environment(const std::filesystem::path& root = "/",
                             const SystemQueries& queries = system_queries());

/// Whether the value of this environment variable may be in a report: those that steer NCCL, CUDA,
/// cuDNN, OpenMP, Open MPI, UCX and oneDNN. All others may hold secrets.
bool may_record_variable(std::string_view name);

/// Facts that the host's operator attached: a JSON file with one object of texts, numbers and truth
/// values, at most 64 KiB and 256 entries. Throws std::invalid_argument for any other.
std::map<std::string, std::string> read_host_facts(const std::filesystem::path& path);

/// Takes host names, addresses of networks, UUIDs and serial numbers out of the report, wherever
/// they are written, and leaves of absolute paths of the invocation and of variables the name of
/// the file. `host_names` are those by which a layout calls its hosts.
void leave_out_host_info(Report& report, const std::vector<std::string>& host_names = {});

/// Sockets, cores and NUMA nodes by hwloc. Where `root` is not "/", hwloc reads a copy of a
/// system's files.
Processor find_processor(const std::filesystem::path& root);

Limits find_limits(const std::filesystem::path& root);

/// All but the loopback, sorted by name; at most 64.
std::vector<NetworkInterface> find_network(const std::filesystem::path& root);

/// Names of this machine's interfaces that have an address in a network such as 10.0.0.0/24.
std::set<std::string> interfaces_in(const std::string& network);

}  // namespace nearmetal
