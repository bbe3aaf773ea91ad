// Sums gradients in host memory over the ranks of an MPI job.
#pragma once

#include <string>
#include <vector>

#include "comm/mpi/mpi_sums.h"
#include "models/all_reduce.h"

namespace nearmetal {

/// One non-blocking reduction per bucket. MPI moves data only inside its calls, so that each start
/// pushes the earlier ones on.
class MpiAllReduce : public AllReduce {
 public:
  explicit MpiAllReduce(MPI_Comm everyone);
  ~MpiAllReduce() override;
  MpiAllReduce(const MpiAllReduce&) = delete;
  MpiAllReduce& operator=(const MpiAllReduce&) = delete;

  std::string library() const override { return mpi_version(); }
  int ranks() const override { return ranks_; }
  void bind(std::vector<GradientBucket> buckets) override;
  void start(int first, int count, void* stream) override;
  void finish(void* stream) override;
  std::vector<BucketTest> test(int repeats) override;

 private:
  MPI_Comm gradients_ = MPI_COMM_NULL;  // apart from all other talk of the ranks
  MpiSums sums_;
  int rank_ = 0;
  int ranks_ = 1;
  std::vector<GradientBucket> buckets_;
  std::vector<MPI_Request> requests_;  // by bucket
};

}  // namespace nearmetal
