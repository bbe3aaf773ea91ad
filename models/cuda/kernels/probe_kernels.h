// Kernels that probes need beside those of a step.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace nearmetal::cuda {

/// A kernel that does nothing.
void launch_nothing(cudaStream_t stream);

/// Blocks, of which a multiprocessor holds one or two, that take this many of its clocks and need
/// nothing else, so that all together take as long as there are few multiprocessors.
void launch_hold(int blocks, int64_t clocks, cudaStream_t stream);

/// Reads `bytes` (of 16 each): what the cache then holds is these, and nothing that must be
/// written back.
void launch_read(const void* memory, int64_t bytes, cudaStream_t stream);

}  // namespace nearmetal::cuda
