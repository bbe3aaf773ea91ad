// How fast MPI moves bytes of the hosts' memory between the ranks.
#pragma once

#include <mpi.h>

#include <vector>

#include "models/probe.h"

namespace nearmetal {

/// Ping-pong of the first rank and the last; allreduce, allgather and broadcast of all. Sizes and
/// bus factors are those of nccl-tests: of allgather the bytes that each rank ends with. Each
/// checks what arrives before it is timed.
std::vector<Probe> mpi_probes(MPI_Comm everyone);

}  // namespace nearmetal
