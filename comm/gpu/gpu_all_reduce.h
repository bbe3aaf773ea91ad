// Sums gradients in the memory of GPUs on a stream of their own; what sums them is left open.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <type_traits>
#include <vector>

#include "models/all_reduce.h"

namespace nearmetal {

/// Throws std::runtime_error with the call and the library's own text.
void require_ok(cudaError_t status, const char* call);

/// What sums on a stream of its own, of the highest priority, beside the backward pass; the stream
/// of the step waits only in finish(). All of it may be captured into a CUDA graph, which must be
/// destroyed before this is.
class GpuAllReduce : public AllReduce {
 public:
  /// `rank` of `ranks` that take part in the sums.
  GpuAllReduce(int rank, int ranks, int gpu);

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
  struct DestroyStream {
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  };
  struct DestroyEvent {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  using Stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, DestroyStream>;
  using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;

  static Event make_event();
  // Of `count` buckets from `first` on, on stream().
  virtual void sum(int first, int count) = 0;
  BucketTest test_bucket(int number, int repeats);
  bool sums_exactly(int number);

  int rank_ = 0;
  int ranks_ = 1;
  Stream stream_;
  Event begin_, end_;  // of what this does
  std::vector<GradientBucket> buckets_;
};

}  // namespace nearmetal
