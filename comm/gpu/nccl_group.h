// Groups of ranks as NCCL knows them.
#pragma once

#include <nccl.h>

#include <string>

#include "models/cuda/device/check.h"
#include "models/training_options.h"

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

}  // namespace nearmetal
