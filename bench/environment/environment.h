// This machine as found: evidence for the report.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bench/environment/virtualisation.h"
#include "reports/document/environment.h"

namespace nearmetal {

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

/// All but the loopback, sorted by name; at most 64.
std::vector<NetworkInterface> find_network(const std::filesystem::path& root);

/// Names of this machine's interfaces that have an address in a network: 10.0.0.0/24, fd00::/64.
std::set<std::string> interfaces_in(const std::string& network);

}  // namespace nearmetal
