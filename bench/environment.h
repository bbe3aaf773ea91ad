// What this machine is, as found: evidence for the report, no claims.
#pragma once

#include <filesystem>

#include "reports/types.h"

namespace nearmetal {

/// Host, processor, memory, limits and the environment variables that steer the libraries. What
/// cannot be found out is unknown, with the reason. `root` is the folder of the system's files, "/"
/// but in tests.
Environment find_environment(const std::filesystem::path& root = "/");

/// Whether the value of this environment variable may be in a report: those that steer NCCL, CUDA,
/// cuDNN, OpenMP, Open MPI, UCX and oneDNN. All others may hold secrets.
bool may_record_variable(std::string_view name);

/// The GPU as its backend describes it.
Gpu describe_gpu(const DeviceInfo& device);

}  // namespace nearmetal
