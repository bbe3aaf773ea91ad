// The command line that starts a job on its hosts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/layout/placement.h"

namespace nearmetal {

struct LaunchOptions {
  bool as_root = false;  // of the one who launches: Open MPI asks for a confirmation
  std::optional<double> timeout_seconds;
};

/// mpirun of Open MPI 4.1 or 5 with all its arguments. MPI is kept to TCP, and to shared memory in
/// a job on one host that is not split, since GPUs exchange gradients by NCCL; ranks bind
/// themselves. Ranks that need different environments, CPUs or GPU indexes are in contexts of their
/// own (":"). `run_arguments`: "run" and its options, of every rank.
std::vector<std::string> launch_command(const PlacedJob& job, const Launcher& launcher,
                                        const std::vector<std::string>& run_arguments,
                                        const LaunchOptions& options = {});

}  // namespace nearmetal
