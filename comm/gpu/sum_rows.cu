#include "comm/gpu/sum_rows.h"
#include "models/cuda/device/call.h"
#include "models/cuda/kernels/pack.h"

namespace nearmetal {
namespace {

using cuda::from_float;
using cuda::load_pack;
using cuda::Pack;
using cuda::pack_width;
using cuda::store_pack;
using cuda::to_float;

constexpr int row_threads = 128;
constexpr int64_t most_row_blocks = 128;

template <class T>
__global__ void sum_rows_kernel(Rows rows, T* out) {
  constexpr int width = pack_width<T>;
  const int64_t step = int64_t{gridDim.x} * row_threads * width;
  for (int64_t i = (int64_t{blockIdx.x} * row_threads + threadIdx.x) * width; i < rows.elements;
       i += step) {
    float sums[width] = {};
    for (int row = 0; row < rows.count; ++row) {
      const T* from = row == rows.own ? out : static_cast<const T*>(rows.data) + row * rows.stride;
      const Pack<T> values = load_pack(from + i);
#pragma unroll
      for (int j = 0; j < width; ++j) sums[j] += to_float(values.values[j]);
    }
    Pack<T> rounded;
#pragma unroll
    for (int j = 0; j < width; ++j) rounded.values[j] = from_float<T>(sums[j]);
    store_pack(out + i, rounded);
  }
}

}  // namespace

void launch_sum_rows(Precision type, const Rows& rows, void* out, cudaStream_t stream) {
  cuda::with_element_type(type, [&]<class T>() {
    const int64_t per_block = int64_t{row_threads} * pack_width<T>;
    const int64_t blocks = min((rows.elements + per_block - 1) / per_block, most_row_blocks);
    sum_rows_kernel<T>
        <<<static_cast<unsigned>(blocks), row_threads, 0, stream>>>(rows, static_cast<T*>(out));
  });
  NM_CHECK_LAUNCH();
}

}  // namespace nearmetal
