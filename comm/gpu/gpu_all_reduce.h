// Sums gradients in the memory of GPUs on a stream of their own; what sums them is left open.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "comm/join_all_reduce.h"
#include "models/cuda/device/check.h"
#include "models/training_options.h"

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
  BucketTest test_bucket(int number, int repeats);
  bool sums_exactly(int number);

  int rank_ = 0;
  int ranks_ = 1;
  cuda::StreamHandle stream_;
  cuda::EventHandle begin_, end_;  // of what this does
  std::vector<GradientBucket> buckets_;
};

/// One row of values for each rank; the values of a row lie one after another.
struct Rows {
  const void* data = nullptr;  // aligned to 16 bytes
  int64_t stride = 0;          // elements from a row to the next, a multiple of 16 bytes
  int count = 0;
  int own = 0;           // of this rank: instead of the row, what is in the place of the sums
  int64_t elements = 0;  // of a row, a multiple of 16 bytes, too
};

/// out[i] = the sum over all rows of element i, in their order: added in fp32, rounded once to
/// `type` (fp32, bf16 or fp16). `out` is aligned to 16 bytes. In small blocks, which find room
/// beside those of the backward pass.
void launch_sum_rows(Precision type, const Rows& rows, void* out, cudaStream_t stream);

}  // namespace nearmetal
