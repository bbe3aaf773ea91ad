// Kernels beside those of a step: for probes, and for the pause between two kernels of a CUDA
// graph.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace nearmetal::cuda {

void launch_nothing(cudaStream_t stream);

/// Blocks, of which a multiprocessor holds one or two, that take this many of its clocks and need
/// nothing else, so that all together take as long as there are few multiprocessors.
void launch_hold(int blocks, int64_t clocks, cudaStream_t stream);

/// Reads `bytes` (of 16 each): what the cache then holds is these, and nothing that must be
/// written back.
void launch_read(const void* memory, int64_t bytes, cudaStream_t stream);

/// Keeps the kernels of graphs that are launched next on `stream` from starting 0.2 to 0.4 us late
/// each, a state of the driver or the GPU that a few ordinary launches bring back
/// (docs/notes/step_speed.md). Does nothing below compute capability 90 (9.0), which has no
/// dependent launches.
void shorten_graph_latency(cudaStream_t stream, int compute_capability);

}  // namespace nearmetal::cuda
