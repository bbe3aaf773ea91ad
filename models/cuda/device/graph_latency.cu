#include "models/cuda/device/call.h"
#include "models/cuda/device/graph_latency.h"

namespace nearmetal::cuda {
namespace {

__global__ void empty_kernel() {}

}  // namespace

void shorten_graph_latency(cudaStream_t stream, int compute_capability) {
  if (compute_capability < 90) return;
  cudaLaunchAttribute dependent{};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = 1;
  config.blockDim = 1;
  config.stream = stream;
  NM_CALL(cudaLaunchKernelEx(&config, empty_kernel));  // on which the next one depends
  config.attrs = &dependent;
  config.numAttrs = 1;
  NM_CALL(cudaLaunchKernelEx(&config, empty_kernel));
}

}  // namespace nearmetal::cuda
