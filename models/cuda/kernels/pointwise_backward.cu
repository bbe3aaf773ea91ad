#include <algorithm>
#include <stdexcept>

#include "models/cuda/device/check.h"
#include "models/cuda/kernels/partial_sums.h"
#include "models/cuda/kernels/pointwise_backward.h"
#include "models/cuda/kernels/pointwise_products.h"

namespace nearmetal::cuda {

using namespace pointwise;

namespace {

// One block on each multiprocessor: two warpgroups that form the gradient, one that multiplies for
// dx, and one for the weight gradient.
template <class T, int out, int in, bool relu>
__global__ void __launch_bounds__(threads, 1)
    pointwise_backward_kernel(PointwiseBackwardOperands operands, int64_t rows) {
#ifdef NM_HAS_WGMMA
  extern __shared__ unsigned char unaligned[];
  constexpr unsigned alignment = Tiling<out, in>::alignment;
  const auto start = static_cast<unsigned>(__cvta_generic_to_shared(unaligned));
  unsigned char* shared = unaligned + (alignment - start % alignment) % alignment;
  if (threadIdx.x < formers) {
    decrease_registers<former_registers>();
    Former<T, out, in, relu> former(operands, rows, shared);
    former.form_tile(0);
    __syncthreads();
    int turn = 0;
    for (int64_t row = int64_t{blockIdx.x} * tile_rows; row < rows;
         row += int64_t{gridDim.x} * tile_rows, ++turn) {
      former.form_tile(turn + 1);
      __syncthreads();
    }
    return;
  }
  increase_registers<multiplier_registers>();
  load_weights<T, out, in>(shared + Tiling<out, in>::weights,
                           static_cast<const T*>(operands.weights));
  fence_async_proxy();
  __syncthreads();
  if (threadIdx.x < formers + group_threads) {
    multiply_tiles<T, out, in, DataGradient<T, out, in>>(operands, rows, shared);
  } else {
    multiply_tiles<T, out, in, WeightGradient<T, out, in>>(operands, rows, shared);
  }
#else
  __trap();
#endif
}

// Of a partial sum, its place in the weights: the sums are [wide panel][narrow channel][wide
// channel of the panel].
template <int out, int in>
struct WeightPlace {
  __device__ int operator()(int value) const {
    const int wide = value / 4096 * panel_columns + value % 64, narrow = value / 64 % 64;
    return out < in ? narrow * in + wide : wide * in + narrow;
  }
};

// Calls body.operator()<out, in>() for the shape's channels; false if there is no kernel for them.
template <class Body>
bool with_channels(const PointwiseShape& shape, Body&& body) {
  const auto is = [&](int out, int in) {
    return shape.output_channels == out && shape.input_channels == in;
  };
  if (is(256, 64)) return body.template operator()<256, 64>(), true;
  if (is(64, 256)) return body.template operator()<64, 256>(), true;
  if (is(64, 64)) return body.template operator()<64, 64>(), true;
  return false;
}

int64_t weight_count(const PointwiseShape& shape) {
  return int64_t{shape.output_channels} * shape.input_channels;
}

template <class T, int out, int in, bool relu>
void launch(const PointwiseBackwardOperands& operands, const PointwiseShape& shape,
            int multiprocessors, cudaStream_t stream) {
  constexpr int bytes = Tiling<out, in>::bytes + Tiling<out, in>::alignment;
  const auto kernel = pointwise_backward_kernel<T, out, in, relu>;
  static const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  NM_CALL(allowed);
  kernel<<<multiprocessors, threads, bytes, stream>>>(operands, shape.rows);
  NM_CHECK_LAUNCH();
  add_partial_sums(operands.partial_sums, multiprocessors, out * in, WeightPlace<out, in>(),
                   static_cast<T*>(operands.weight_gradient), stream);
}

}  // namespace

bool pointwise_backward_fits(Precision precision, const PointwiseShape& shape,
                             int compute_capability_major) {
  const bool is_16_bit = precision == Precision::fp16 || precision == Precision::bf16;
  return is_16_bit && compute_capability_major == 9 &&
         with_channels(shape, [&]<int out, int in>() { static_assert(out > 0 && in > 0); });
}

int64_t pointwise_backward_scratch_bytes(const PointwiseShape& shape, int multiprocessors) {
  return weight_count(shape) * multiprocessors * static_cast<int64_t>(sizeof(float));
}

void launch_pointwise_backward(Precision precision, const PointwiseBackwardOperands& operands,
                               const PointwiseShape& shape, int multiprocessors,
                               cudaStream_t stream) {
  const auto for_type = [&]<class T>() {
    return with_channels(shape, [&]<int out, int in>() {
      operands.relu ? launch<T, out, in, true>(operands, shape, multiprocessors, stream)
                    : launch<T, out, in, false>(operands, shape, multiprocessors, stream);
    });
  };
  const bool launched = precision == Precision::fp16 ? for_type.template operator()<__half>()
                        : precision == Precision::bf16
                            ? for_type.template operator()<__nv_bfloat16>()
                            : false;
  if (!launched) throw std::logic_error("no fused backward kernel for these channels");
}

}  // namespace nearmetal::cuda
