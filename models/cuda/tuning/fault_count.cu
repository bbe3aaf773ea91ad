#include "models/cuda/device/call.h"
#include "models/cuda/kernels/pack.h"
#include "models/cuda/tuning/samples.h"

namespace nearmetal::cuda {
namespace {

constexpr int fault_threads = 128, fault_blocks = 1024;

template <class T>
__device__ bool same_bits(T a, T b) {
  if constexpr (sizeof(T) == 2) {
    return reinterpret_cast<const uint16_t&>(a) == reinterpret_cast<const uint16_t&>(b);
  } else {
    return __float_as_uint(a) == __float_as_uint(b);
  }
}

template <class T>
__global__ void count_faults_kernel(const T* values, const T* other, int64_t count,
                                    unsigned long long* total) {
  unsigned long long mine = 0;
  for (int64_t i = int64_t{blockIdx.x} * fault_threads + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * fault_threads) {
    const bool good =
        other == nullptr ? isfinite(to_float(values[i])) : same_bits(values[i], other[i]);
    mine += good ? 0 : 1;
  }
  if (mine != 0) atomicAdd(total, mine);
}

}  // namespace

void launch_count_faults(Precision precision, const void* values, const void* other, int64_t count,
                         unsigned long long* total, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    count_faults_kernel<<<fault_blocks, fault_threads, 0, stream>>>(
        static_cast<const T*>(values), static_cast<const T*>(other), count, total);
  });
  NM_CHECK_LAUNCH();
}

}  // namespace nearmetal::cuda
