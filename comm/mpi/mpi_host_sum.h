// Sums in host memory over the ranks of an MPI communicator.
#pragma once

#include "comm/host_sum.h"
#include "comm/mpi/mpi_sums.h"

namespace nearmetal {

/// Called beside the thread that made the world: MPI must have been told of threads.
class MpiHostSum : public HostSum {
 public:
  /// Over those ranks of `everyone` that give the same `part`; collective over all of them.
  MpiHostSum(MPI_Comm everyone, int part);
  ~MpiHostSum() override;
  MpiHostSum(const MpiHostSum&) = delete;
  MpiHostSum& operator=(const MpiHostSum&) = delete;

  std::string library() const override { return mpi_version(); }
  void sum(const GradientBucket& values) override;

 private:
  MPI_Comm ranks_ = MPI_COMM_NULL;
  MpiSums sums_;
};

}  // namespace nearmetal
