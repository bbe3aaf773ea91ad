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

ncclDataType_t nccl_type(Precision type);

struct AbortCommunicator {
  // Without waiting for other ranks, which may have failed.
  void operator()(ncclComm_t communicator) const { ncclCommAbort(communicator); }
};
using Communicator = std::unique_ptr<std::remove_pointer_t<ncclComm_t>, AbortCommunicator>;

/// Waits for all ranks of the group.
Communicator join_group(const std::string& group, int rank, int ranks);

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

  int rank_ = 0;
  int ranks_ = 1;
  Stream stream_;
  Event begin_, end_;  // of what this does
  std::vector<GradientBucket> buckets_;
};

/// One group of NCCL for all ranks.
class NcclAllReduce : public GpuAllReduce {
 public:
  /// Waits for all ranks of the group.
  NcclAllReduce(const std::string& group, int rank, int ranks, int gpu);

  std::string library() const override { return nccl_version(); }

 private:
  void sum(int first, int count) override;

  Communicator communicator_;
};

}  // namespace nearmetal
