#include "models/cuda/device/check.h"
#include "models/cuda/kernels/convert.h"
#include "models/cuda/kernels/pack.h"

namespace nearmetal::cuda {
namespace {

constexpr int convert_threads = 256;
constexpr int at_once = 4;  // elements of a thread: 16 bytes of fp32

template <class T>
struct alignas(at_once * sizeof(T)) AtOnce {
  T values[at_once];
};

template <class From, class To>
__global__ void convert_kernel(const From* in, To* out, int64_t elements) {
  const int64_t i = int64_t{blockIdx.x} * convert_threads + threadIdx.x;
  if (i >= elements / at_once) return;
  const auto loaded = reinterpret_cast<const AtOnce<From>*>(in)[i];
  AtOnce<To> converted;
#pragma unroll
  for (int j = 0; j < at_once; ++j) {
    converted.values[j] = from_float<To>(to_float(loaded.values[j]));
  }
  reinterpret_cast<AtOnce<To>*>(out)[i] = converted;
}

}  // namespace

void launch_convert(Precision from, const void* in, Precision to, void* out, int64_t elements,
                    cudaStream_t stream) {
  const unsigned blocks = blocks_for(elements, int64_t{convert_threads} * at_once);
  with_element_type(from, [&]<class From>() {
    with_element_type(to, [&]<class To>() {
      convert_kernel<From, To><<<blocks, convert_threads, 0, stream>>>(
          static_cast<const From*>(in), static_cast<To*>(out), elements);
    });
  });
  NM_CHECK_LAUNCH();
}

}  // namespace nearmetal::cuda
