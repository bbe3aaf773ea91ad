// The pause between two kernels of a CUDA graph.
#pragma once

#include <cuda_runtime.h>

namespace nearmetal::cuda {

/// Keeps the kernels of graphs that are launched next on `stream` from starting 0.2 to 0.4 us late
/// each, a state of the driver or the GPU that a few ordinary launches bring back
/// (docs/notes/step_speed.md). Does nothing below compute capability 90 (9.0), which has no
/// dependent launches.
void shorten_graph_latency(cudaStream_t stream, int compute_capability);

}  // namespace nearmetal::cuda
