#include "models/cuda/kernels/beside_step.h"
#include "models/cuda/kernels/pack.h"

namespace nearmetal::cuda {
namespace {

__global__ void nothing_kernel() {}

// The memory is never all ones, which the compiler does not know.
__global__ void read_kernel(const uint4* __restrict__ memory, int64_t count, unsigned* all_ones) {
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  unsigned both = ~0u;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += threads) {
    const uint4 value = memory[i];
    both &= value.x & value.y & value.z & value.w;
  }
  if (both == ~0u && all_ones != nullptr) *all_ones = 1;
}

constexpr int most_threads = 1024;  // of a block: half a multiprocessor, or all of a smaller one

__global__ void __launch_bounds__(most_threads) hold_kernel(int64_t clocks) {
  const int64_t begin = clock64();
  while (clock64() - begin < clocks) {
  }
}

}  // namespace

void launch_hold(int blocks, int64_t clocks, cudaStream_t stream) {
  enqueue({dim3(blocks), most_threads, stream}, hold_kernel, clocks);
}

void launch_nothing(cudaStream_t stream) { enqueue({1, 32, stream}, nothing_kernel); }

void launch_read(const void* memory, int64_t bytes, cudaStream_t stream) {
  enqueue({1024, 256, stream}, read_kernel, memory, bytes / 16, nullptr);
}

void shorten_graph_latency(cudaStream_t stream, int compute_capability) {
  if (compute_capability < 90) return;
  cudaLaunchAttribute dependent{};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = 1;
  config.blockDim = 1;
  config.stream = stream;
  NM_CALL(cudaLaunchKernelEx(&config, nothing_kernel));  // on which the next one depends
  config.attrs = &dependent;
  config.numAttrs = 1;
  NM_CALL(cudaLaunchKernelEx(&config, nothing_kernel));
}

}  // namespace nearmetal::cuda
