// Sums gradients in the memory of GPUs over the ranks of an NCCL communicator.
#pragma once

#include <nccl.h>

#include <memory>
#include <string>
#include <type_traits>

#include "comm/gpu/gpu_all_reduce.h"

namespace nearmetal {

/// Throws std::runtime_error with the call and the library's own text.
void require_ok(ncclResult_t status, const char* call);

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
