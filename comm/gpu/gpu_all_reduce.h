// Sums gradients in the memory of GPUs on a stream of their own; what sums them is left open.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "comm/join_ranks.h"
#include "models/cuda/device/check.h"
#include "models/program.h"

namespace nearmetal {

/// An all-reduce on a stream of its own, of the highest priority, beside the backward pass; the
/// stream of the step waits only in finish(). All of it may be captured into a CUDA graph, which
/// must be destroyed before this is.
class GpuAllReduce : public AllReduce {
 public:
  explicit GpuAllReduce(const JoinRequest& request);

  int ranks() const override { return ranks_; }
  void bind(std::vector<GradientBucket> buckets) override { buckets_ = std::move(buckets); }
  void start(int first, int count, void* stream) override;
  void finish(void* stream) override;
  std::vector<BucketTest> test(int repeats) override;

 protected:
  int rank() const { return rank_; }
  const std::vector<GradientBucket>& buckets() const { return buckets_; }
  cudaStream_t stream() const { return stream_.get(); }

 private:
  // Sums `count` buckets from `first` on, on stream().
  virtual void sum(int first, int count) = 0;
  bool sums_exactly(int number);

  int rank_ = 0;
  int ranks_ = 1;
  cuda::StreamHandle stream_;
  cuda::EventHandle begin_, end_;  // of what this does
  std::vector<GradientBucket> buckets_;
};

}  // namespace nearmetal
