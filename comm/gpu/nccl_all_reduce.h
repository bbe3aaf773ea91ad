// Sums gradients in the memory of GPUs over the ranks of an NCCL communicator.
#pragma once

#include <nccl.h>

#include <string>

#include "comm/gpu/gpu_all_reduce.h"

namespace nearmetal::cuda {

void require_ok(ncclResult_t status, const char* call, const char* file, int line);

}  // namespace nearmetal::cuda

namespace nearmetal {

/// "nccl 2.28.9", as loaded.
std::string nccl_version();

ncclDataType_t nccl_type(Precision type);

/// Ends without waiting for other ranks, which may have failed.
using Communicator = cuda::Handle<ncclComm_t, ncclCommAbort>;

/// Waits for all ranks of the group.
Communicator join_group(const std::string& group, int rank, int ranks);

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
