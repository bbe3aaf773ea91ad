#include "models/cuda/device/call.h"
#include "models/cuda/kernels/channel_reduction.h"
#include "models/cuda/kernels/pointwise/backward.h"
#include "models/cuda/kernels/pointwise/backward_tiles.h"
#include "models/cuda/kernels/pointwise/data_gradient.h"

namespace nearmetal::cuda {

using namespace pointwise;

namespace {

#ifdef NM_HAS_WGMMA

// The weight gradient, added up over this block's tiles: a warpgroup has 64 channels of one side x
// all of the other, the wide side.
template <class T, int out, int in>
class WeightGradient {
 public:
  static constexpr int wide = out < in ? in : out;
  static constexpr int columns = product_columns(wide);
  static constexpr int products = wide / columns;

  __device__ void run(const TilePanels& tile, int) {
    const unsigned char* narrow = (out < in ? tile.gradient : tile.x) + group() * panel_bytes;
    const unsigned char* wide = out < in ? tile.x : tile.gradient;
    const uint64_t first_a = panel_operand(narrow), first_b = panel_operand(wide, panel_bytes);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < tile_rows / 16; ++k) {
      const uint64_t a = operand_behind(first_a, k * 16 * panel_row_bytes);
#pragma unroll
      for (int product = 0; product < products; ++product) {
        const int panel = product * columns / panel_columns;
        const uint64_t b = operand_behind(first_b, panel * panel_bytes + k * 16 * panel_row_bytes);
        if constexpr (columns == 64) {
          wgmma_m64n64k16<T, true, true>(sums_[product], a, b, true);
        } else {
          wgmma_m64n128k16<T, true, true>(sums_[product], a, b, true);
        }
      }
    }
    wgmma_commit_group();
    wgmma_wait_all();
  }
  __device__ void after(int) {}
  // As [block][slice][warpgroup][panel of the wide side][narrow channel][wide channel of the
  // panel].
  __device__ void finish(const PointwiseBackwardOperands& operands) {
    const int thread = static_cast<int>(threadIdx.x) % group_threads;
    const int row = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
    float* destination = operands.partial_sums +
                         (int64_t{blockIdx.x} * gridDim.y + blockIdx.y) * out * in +
                         group() * 64 * wide + row * 64 + column;
#pragma unroll
    for (int product = 0; product < products; ++product) {
      float(&sums)[columns / 2] = sums_[product];
      use_results(sums);
#pragma unroll
      for (int j = 0; j < columns / 8; ++j) {
        const int panel = product * columns / panel_columns + j / 8;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float* at = destination + (panel * 64 + half * 8) * 64 + j % 8 * 8;
          *reinterpret_cast<float2*>(at) =
              make_float2(sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1]);
        }
      }
    }
  }

 private:
  // Among the warpgroups that hold the weight gradient.
  __device__ static int group() {
    const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / warp_lanes, 0);
    return warp / group_warps - Roles<out, in>::first_weight_group;
  }

  float sums_[products][columns / 2] = {};
};

// Multiplies tile after tile; all threads of the block meet before a tile and after the last. What
// reads the panels of a tile does so before the end of run().
template <class T, int out, int in, class Products>
__device__ void multiply_tiles(const PointwiseBackwardOperands& operands, int rows,
                               unsigned char* shared, Products products) {
  using Tiles = Tiling<out, in>;
  load_weights<T, out, in>(shared + Tiles::weights, static_cast<const T*>(operands.weights));
  fence_async_proxy();
  __syncthreads();
  const int stride = static_cast<int>(gridDim.x) * tile_rows;
  int turn = 0;
  for (int row = static_cast<int>(blockIdx.x) * tile_rows; row < rows; row += stride, ++turn) {
    const int gradient = turn % Tiles::gradient_slots, x = turn % Tiles::x_slots;
    products.run({shared + Tiles::gradient + gradient * Tiles::out_panels * panel_bytes,
                  shared + Tiles::x + x * Tiles::in_panels * panel_bytes, shared + Tiles::weights},
                 row);
    __syncthreads();
    products.after(row);
  }
  products.finish(operands);
}

template <int registers>
__device__ void set_registers() {
  if constexpr (registers < 65536 / threads) {
    decrease_registers<registers>();
  } else {
    increase_registers<registers>();
  }
}

#endif  // NM_HAS_WGMMA

// One block on each multiprocessor; of more than 256 input channels it has a slice.
template <class T, int out, int in, Form form, bool joined>
__global__ void __launch_bounds__(threads, 1)
    pointwise_backward_kernel(PointwiseBackwardOperands operands, PixelPlaces places, int rows) {
#ifdef NM_HAS_WGMMA
  using Part = Roles<out, in>;
  extern __shared__ unsigned char unaligned[];
  unsigned char* shared = aligned_for_panels(unaligned);
  if (threadIdx.x < Part::formers) {
    set_registers<Part::former_registers>();
    Former<T, out, in, form, joined> former(operands, places, rows, shared);
    former.form_tile(0);
    __syncthreads();
    int turn = 0;
    for (int row = static_cast<int>(blockIdx.x) * tile_rows; row < rows;
         row += static_cast<int>(gridDim.x) * tile_rows, ++turn) {
      former.form_tile(turn + 1);
      __syncthreads();
    }
  } else if (threadIdx.x >= Part::first_weight_group * group_threads) {
    set_registers<Part::weight_registers>();
    multiply_tiles<T, out, in>(operands, rows, shared, WeightGradient<T, out, in>());
  } else {
    set_registers<Part::data_registers>();
    if constexpr (joined) {
      multiply_tiles<T, out, in>(operands, rows, shared,
                                 JoinedGradient<T, out, in>(operands, places, rows, shared));
    } else {
      multiply_tiles<T, out, in>(operands, rows, shared, DataGradient<T, out, in>(operands, rows));
    }
  }
#else
  __trap();
#endif
}

// The place of a partial sum in the weights.
template <int out, int in>
struct WeightPlace {
  int slices;

  __device__ int operator()(int value) const {
    const int slice = value / (out * in), within = value % (out * in);
    if (out >= in) return (within / 4096 * panel_columns + within % 64) * in + within / 64 % 64;
    const int output = within / (64 * in) * 64 + within / 64 % 64;
    const int input = within % (64 * in) / 4096 * panel_columns + within % 64;
    return output * in * slices + slice * in + input;
  }
};

struct SamePlace {
  __device__ int operator()(int value) const { return value; }
};

// Blocks share the rows of a shape with so many input channels in slices of 256.
int slices_of(const PointwiseShape& shape) {
  return shape.output_channels == 128 ? shape.input_channels / 256 : 1;
}
int blocks_of_slice(const PointwiseShape& shape, int multiprocessors) {
  return max(1, multiprocessors / slices_of(shape));
}

// Calls body.operator()<out, in>() for the channels of the shape, or of a slice of it; false if
// there is no kernel for them.
template <class Body>
bool with_channels(const PointwiseShape& shape, Body&& body) {
  const auto is = [&](int out, int in) {
    return shape.output_channels == out && shape.input_channels == in;
  };
  if (is(256, 64)) return body.template operator()<256, 64>(), true;
  if (is(64, 256)) return body.template operator()<64, 256>(), true;
  if (is(64, 64)) return body.template operator()<64, 64>(), true;
  if (is(128, 256) || is(128, 512)) return body.template operator()<128, 256>(), true;
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
  const int slices = slices_of(shape), blocks = blocks_of_slice(shape, multiprocessors);
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(slices));
  enqueue({grid, threads, stream, bytes}, pointwise_backward_kernel<T, out, in, form, joined>,
          operands, PixelPlaces(operands.second_at_even_pixels_of), static_cast<int>(shape.rows));
  add_partial_sums(operands.partial_sums, blocks, out * in * slices, WeightPlace<out, in>{slices},
                   static_cast<T*>(operands.weight_gradient), stream);
  if (!joined) return;
  add_partial_sums(operands.partial_sums + weight_count(shape) * blocks, blocks * group_warps,
                   shape.input_channels, SamePlace(), operands.dx_sums, stream);
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
  return (weight_count(shape) + sums) * blocks_of_slice(shape, multiprocessors) *
         static_cast<int64_t>(sizeof(float));
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
