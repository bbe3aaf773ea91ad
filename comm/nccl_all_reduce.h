// Sums gradients in the memory of GPUs over the ranks of an NCCL communicator.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "models/all_reduce.h"

namespace nearmetal {

/// Throw std::runtime_error with the call and the library's own text.
void require_ok(ncclResult_t status, const char* call);
void require_ok(cudaError_t status, const char* call);

/// "nccl 2.28.9", as loaded.
std::string nccl_version();

/// On a stream of its own, of the highest priority, beside the backward pass; the stream of the
/// step waits only in finish(). All of it may be captured into a CUDA graph, which must be
/// destroyed before this is.
class NcclAllReduce : public AllReduce {
 public:
  /// Waits for all ranks of the group.
  NcclAllReduce(const std::string& group, int rank, int ranks, int gpu);
  ~NcclAllReduce() override;

  std::string library() const override { return nccl_version(); }
  int ranks() const override { return ranks_; }
  void bind(std::vector<GradientBucket> buckets) override { buckets_ = std::move(buckets); }
  void start(int first, int count, void* stream) override;
  void finish(void* stream) override;
  std::vector<BucketTest> test(int repeats) override;

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
  void sum(const GradientBucket& bucket);
  BucketTest test(const GradientBucket& bucket, int repeats);

  int rank_ = 0;
  int ranks_ = 1;
  Stream stream_;
  Event begin_, end_;  // of what this does
  ncclComm_t communicator_ = nullptr;
  std::vector<GradientBucket> buckets_;
};

}  // namespace nearmetal
