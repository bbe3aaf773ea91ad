// What this machine is, as found: evidence for the report.
#pragma once

#include <filesystem>

#include "bench/environment/virtualisation.h"
#include "reports/document/types.h"

namespace nearmetal {

/// Host, processor, memory, limits and the environment variables that steer the libraries. What
/// cannot be found out is unknown, with the reason. `root` is the folder of the system's files, "/"
/// but in tests.
Environment find_environment(const std::filesystem::path& root = "/",
                             const Probes& probes = real_probes());

/// Whether the value of this environment variable may be in a report: those that steer NCCL, CUDA,
/// cuDNN, OpenMP, Open MPI, UCX and oneDNN. All others may hold secrets.
bool may_record_variable(std::string_view name);

/// Facts that the host's operator attached: a JSON file with one object of texts, numbers and truth
/// values, at most 64 KiB and 256 entries. Throws std::invalid_argument for any other.
std::map<std::string, std::string> read_host_facts(const std::filesystem::path& path);

/// Takes host names, UUIDs and serial numbers out of the report, wherever they are written, and
/// leaves of absolute paths of the invocation and of variables the name of the file.
void leave_out_host_info(Report& report);

}  // namespace nearmetal
