#include "models/cuda/device/call.h"
#include "models/cuda/kernels/channel_reduction.h"
#include "models/cuda/kernels/pointwise/backward.h"
#include "models/cuda/kernels/pointwise/backward_tiles.h"

namespace nearmetal::cuda {

using namespace pointwise;

namespace {

#ifdef NM_HAS_WGMMA

constexpr int wide_panels(int out, int in) { return (out > in ? out : in) / panel_columns; }

// The weight gradient, added up over this block's tiles: the side of 64 channels x the other.
template <class T, int out, int in>
struct WeightGradient {
  static constexpr int panels = wide_panels(out, in);
  float sums[panels][32] = {};

  __device__ void begin(const unsigned char* gradient, const unsigned char* x,
                        const unsigned char*) {
    const unsigned char* narrow = out < in ? gradient : x;
    const unsigned char* wide = out < in ? x : gradient;
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < tile_rows / 16; ++k) {
      const uint64_t a = panel_operand(narrow + k * 16 * panel_row_bytes);
#pragma unroll
      for (int panel = 0; panel < panels; ++panel) {
        const uint64_t b = panel_operand(wide + panel * panel_bytes + k * 16 * panel_row_bytes);
        wgmma_m64n64k16<T, true, true>(sums[panel], a, b, true);
      }
    }
    wgmma_commit_group();
  }
  __device__ void wait(int64_t) { wgmma_wait_all(); }
  __device__ void store(const PointwiseBackwardOperands&, int64_t, int64_t) {}
  // As [panel of the wide side][narrow channel][wide channel of the panel].
  __device__ void finish(const PointwiseBackwardOperands& operands) {
    const int thread = threadIdx.x % group_threads;
    const int row = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
    float* destination = operands.partial_sums + int64_t{blockIdx.x} * panels * 64 * 64;
#pragma unroll
    for (int panel = 0; panel < panels; ++panel) {
      use_results(sums[panel]);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float* at = destination + (panel * 64 + row + half * 8) * 64 + j * 8 + column;
          *reinterpret_cast<float2*>(at) =
              make_float2(sums[panel][4 * j + 2 * half], sums[panel][4 * j + 2 * half + 1]);
        }
      }
    }
  }
};

// Multiplies tile after tile; all threads of the block meet before a tile and after the last. What
// reads the panels of a tile does so before the end of wait().
template <int out, int in, class Products>
__device__ void multiply_tiles(const PointwiseBackwardOperands& operands, int64_t rows,
                               const unsigned char* shared, Products products) {
  using Tiles = Tiling<out, in>;
  const int64_t stride = int64_t{gridDim.x} * tile_rows;
  int turn = 0;
  for (int64_t row = int64_t{blockIdx.x} * tile_rows; row < rows; row += stride, ++turn) {
    products.begin(
        shared + Tiles::gradient + turn % Tiles::gradient_slots * Tiles::out_panels * panel_bytes,
        shared + Tiles::x + turn % Tiles::x_slots * Tiles::in_panels * panel_bytes,
        shared + Tiles::weights);
    products.wait(row);
    __syncthreads();
    products.store(operands, row, rows);
  }
  products.finish(operands);
}

#endif  // NM_HAS_WGMMA

// One block on each multiprocessor: two warpgroups that form the gradient, one that multiplies for
// dx, and one for the weight gradient.
template <class T, int out, int in, Form form, bool joined>
__global__ void __launch_bounds__(threads, 1)
    pointwise_backward_kernel(PointwiseBackwardOperands operands, int64_t rows) {
#ifdef NM_HAS_WGMMA
  extern __shared__ unsigned char unaligned[];
  unsigned char* shared = aligned_for_panels(unaligned);
  if (threadIdx.x < formers) {
    decrease_registers<former_registers>();
    Former<T, out, in, form> former(operands, rows, shared);
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
  if (threadIdx.x >= formers + group_threads) {
    multiply_tiles<out, in>(operands, rows, shared, WeightGradient<T, out, in>());
  } else if constexpr (joined) {
    multiply_tiles<out, in>(operands, rows, shared,
                            JoinedGradient<T, out, in>(operands, rows, shared));
  } else {
    multiply_tiles<out, in>(operands, rows, shared, DataGradient<T, out, in>());
  }
#else
  __trap();
#endif
}

// The place of a partial sum in the weights: the sums are [wide panel][narrow channel][wide channel
// of the panel].
template <int out, int in>
struct WeightPlace {
  __device__ int operator()(int value) const {
    const int wide = value / 4096 * panel_columns + value % 64, narrow = value / 64 % 64;
    return out < in ? narrow * in + wide : wide * in + narrow;
  }
};

struct SamePlace {
  __device__ int operator()(int value) const { return value; }
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

template <class T, int out, int in, Form form, bool joined>
void launch(const PointwiseBackwardOperands& operands, const PointwiseShape& shape,
            int multiprocessors, cudaStream_t stream) {
  using Tiles = Tiling<out, in>;
  constexpr int bytes = (joined ? Tiles::joined_bytes : Tiles::bytes) + panel_alignment;
  enqueue({dim3(multiprocessors), threads, stream, bytes},
          pointwise_backward_kernel<T, out, in, form, joined>, operands, shape.rows);
  add_partial_sums(operands.partial_sums, multiprocessors, out * in, WeightPlace<out, in>(),
                   static_cast<T*>(operands.weight_gradient), stream);
  if (!joined) return;
  add_partial_sums(operands.partial_sums + weight_count(shape) * multiprocessors,
                   multiprocessors * group_warps, in, SamePlace(), operands.dx_sums, stream);
}

}  // namespace

bool pointwise_backward_fits(Precision precision, const PointwiseShape& shape,
                             int compute_capability_major) {
  const bool is_16_bit = precision == Precision::fp16 || precision == Precision::bf16;
  return is_16_bit && compute_capability_major == 9 &&
         with_channels(shape, [&]<int out, int in>() { static_assert(out > 0 && in > 0); });
}

bool pointwise_backward_joins(const PointwiseShape& shape) {
  return shape.input_channels > shape.output_channels;
}

int64_t pointwise_backward_scratch_bytes(const PointwiseShape& shape, int multiprocessors) {
  const int64_t sums = pointwise_backward_joins(shape) ? group_warps * shape.input_channels : 0;
  return (weight_count(shape) + sums) * multiprocessors * static_cast<int64_t>(sizeof(float));
}

void launch_pointwise_backward(Precision precision, const PointwiseBackwardOperands& operands,
                               const PointwiseShape& shape, int multiprocessors,
                               cudaStream_t stream) {
  with_16_bit_type(precision, [&]<class T>() {
    const bool launched = with_channels(shape, [&]<int out, int in>() {
      const auto launch_form = [&]<Form form>() {
        if (operands.dx_second == nullptr) {
          return launch<T, out, in, form, false>(operands, shape, multiprocessors, stream);
        }
        if constexpr (in > out) {
          return launch<T, out, in, form, true>(operands, shape, multiprocessors, stream);
        }
        no_kernel("no fused backward kernel joins gradients of these channels");
      };
      if (operands.y != nullptr && !operands.relu) {
        return launch_form.template operator()<Form::norm>();
      }
      // Behind what widens come second moments, or an addition with a ReLU of its own.
      if (operands.relu != (out <= in)) no_kernel("this form of gradient for these channels");
      launch_form.template operator()<(out > in) ? Form::none : Form::norm_relu>();
    });
    if (!launched) no_kernel("no fused backward kernel for these channels");
  });
}

}  // namespace nearmetal::cuda
