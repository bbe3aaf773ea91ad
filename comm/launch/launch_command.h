// The command line that starts a job's ranks by mpirun.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/layout/layout.h"
#include "comm/layout/placement.h"

namespace nearmetal {

struct LaunchOptions {
  bool as_root = false;  // of the one who launches: Open MPI asks for a confirmation
  std::optional<double> timeout_seconds;
  bool plain_alone = false;  // a job of one rank on this machine starts as in a shell: no mpirun
};

/// mpirun of Open MPI 4.1 or 5 with all its arguments. MPI is kept to TCP, and to shared memory in
/// a job on one host that is not split, since GPUs exchange gradients by NCCL; ranks bind
/// themselves. Where ranks need different environments, CPUs or options, a shell on each host
/// chooses by the rank: contexts (":") would do, but at the second the mpirun of Open MPI 5.0.7 in
/// Debian 13 crashes (open-mpi/ompi#13303). `run_arguments`: "run" and its options, of every rank.
std::vector<std::string> launch_command(const PlacedJob& job, const Launcher& launcher,
                                        const std::vector<std::string>& run_arguments,
                                        const LaunchOptions& options = {});

}  // namespace nearmetal
