// Kernels that probes need beside those of a step.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace nearmetal {

/// A kernel that does nothing.
void launch_nothing(cudaStream_t stream);

/// Reads `bytes` (of 16 each): what the cache then holds is these, and nothing that must be
/// written back.
void launch_read(const void* memory, int64_t bytes, cudaStream_t stream);

}  // namespace nearmetal
