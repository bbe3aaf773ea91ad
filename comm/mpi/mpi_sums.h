// How MPI sums the types in which gradients travel, and how fast it moves bytes.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>
#include <vector>

#include "comm/world.h"
#include "models/probe.h"
#include "models/training_options.h"

namespace nearmetal {

/// Throws std::runtime_error with MPI's own words where `status` is not MPI_SUCCESS.
void require_mpi(int status, const char* what);
/// While it lives, this process is in a call of MPI.
class MpiCall {
 public:
  MpiCall() { counts().begun.fetch_add(1, std::memory_order_relaxed); }
  ~MpiCall() { counts().ended.fetch_add(1, std::memory_order_relaxed); }
  MpiCall(const MpiCall&) = delete;
  MpiCall& operator=(const MpiCall&) = delete;
  static CallCounts& counts();
};
#define NM_MPI(function, ...) \
  ::nearmetal::require_mpi((::nearmetal::MpiCall(), function(__VA_ARGS__)), #function)

/// "Open MPI v4.1.4", as loaded: of what MPI says, the first words.
std::string mpi_version();

/// The count as MPI takes it. Throws std::invalid_argument for 2^31 or more.
int mpi_count(int64_t elements);

/// MPI knows no 16-bit floating-point types: they are two bytes to it, summed by operations of
/// ours, pair by pair in fp32, rounded to nearest even, beyond the largest value infinite.
class MpiSums {
 public:
  MpiSums();
  ~MpiSums();
  MpiSums(const MpiSums&) = delete;
  MpiSums& operator=(const MpiSums&) = delete;

  MPI_Datatype type(Precision precision) const;
  MPI_Op operation(Precision precision) const;

 private:
  MPI_Op bf16_ = MPI_OP_NULL;
  MPI_Op fp16_ = MPI_OP_NULL;
};

/// Ping-pong of the first rank and the last; allreduce, allgather and broadcast of all. Sizes and
/// bus factors are those of nccl-tests: of allgather the bytes that each rank ends with. Each
/// checks what arrives before it is timed.
std::vector<Probe> mpi_probes(MPI_Comm everyone);

}  // namespace nearmetal
