// The pause between two kernels of a CUDA graph.
#pragma once

#include <cuda_runtime.h>

namespace nearmetal::cuda {

/// Before graphs are launched on `stream` with no other kernel between: keeps the driver from
/// starting each of their kernels 0.2 to 0.4 us later (docs/notes/step_speed.md). Nothing before
/// compute capability 9.0.
void shorten_graph_latency(cudaStream_t stream, int compute_capability);

}  // namespace nearmetal::cuda
