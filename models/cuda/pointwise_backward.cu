#include <algorithm>
#include <stdexcept>

#include "models/cuda/check.h"
#include "models/cuda/pack.h"
#include "models/cuda/partial_sums.h"
#include "models/cuda/pointwise_backward.h"
#include "models/cuda/wgmma.h"

namespace nearmetal {
namespace {

constexpr int tile_rows = 64;
constexpr int panel_bytes = tile_rows * panel_row_bytes;
constexpr int group_threads = 128;              // of a warpgroup
constexpr int formers = 2 * group_threads;      // threads that form the gradient
constexpr int multipliers = 2 * group_threads;  // threads that hold the products
constexpr int threads = formers + multipliers;
// Registers of a thread, together all that a multiprocessor has.
constexpr int former_registers = 88;
constexpr int multiplier_registers = 168;

// dz and y pass through a ring of steps of a few rows; a thread reads what it has copied itself.
// The gradient formed from them and x are kept as panels for the products.
template <int out, int in>
struct Tiling {
  static constexpr int out_panels = out / panel_columns;
  static constexpr int in_panels = in / panel_columns;
  static constexpr int row_chunks = out / 8;
  static constexpr int chunks = out == 256 ? 2 : 1;  // of dz, and of y, per step and thread
  static constexpr int rows_at_once = formers / row_chunks;
  static constexpr int step_rows = chunks * rows_at_once;
  static constexpr int steps = tile_rows / step_rows;  // of a tile
  static constexpr int ring = out == 256 ? 6 : 3;      // steps under way
  static constexpr int gradient_slots = 2;
  static constexpr int x_slots = 3;
  // An x tile is complete when the next tile's gradient has been formed.
  static_assert(ring <= 2 * steps - 1);

  // Shared memory.
  static constexpr int step_bytes = 2 * chunks * formers * 16;
  static constexpr int weights = 0;
  static constexpr int gradient = weights + out * in * 2;
  static constexpr int x = gradient + gradient_slots * out_panels * panel_bytes;
  static constexpr int raw = x + x_slots * in_panels * panel_bytes;
  static constexpr int bytes = raw + ring * step_bytes;
  static constexpr int alignment = 1024;
};

constexpr int wide_panels(int out, int in) { return std::max(out, in) / panel_columns; }

#ifdef NM_HAS_WGMMA

// Weights [out, in] as panels of 64 input channels whose columns are exchanged so that the columns
// of one thread's results are 16 neighbouring channels (see multiply_64x64x16).
template <class T, int out, int in>
__device__ void load_weights(unsigned char* shared, const T* weights) {
  constexpr int pairs = in / 2;
  for (int i = threadIdx.x - formers; i < out * pairs; i += multipliers) {
    const int row = i / pairs, column = i % pairs * 2;
    const int within = column % panel_columns;
    const int chunk = within % 16 / 2, place = within / 16 * 2;
    const int offset = column / panel_columns * out * panel_row_bytes + panel_offset(row, chunk) +
                       place * static_cast<int>(sizeof(T));
    *reinterpret_cast<uint32_t*>(shared + offset) =
        *reinterpret_cast<const uint32_t*>(weights + row * in + column);
  }
}

template <class T>
struct GradientForm {
  Channels<T> a, b, c, multiplier, shift;

  __device__ GradientForm(const BatchNormState& state, bool relu, int channel)
      : a(Channels<T>::load(state.a + channel)),
        b(Channels<T>::load(state.b + channel)),
        c(Channels<T>::load(state.c + channel)) {
    if (!relu) return;
    multiplier = Channels<T>::load(state.multiplier + channel);
    shift = Channels<T>::load(state.shift + channel);
  }
  template <bool relu>
  __device__ Pack<T> apply(const Pack<T>& dz, const Pack<T>& y) const {
    const Channels<T> at = to_floats(y);
    Channels<T> gradient = to_floats(dz);
#pragma unroll
    for (int i = 0; i < pack_width<T>; ++i) {
      float& value = gradient.values[i];
      if (relu && !(fmaf(at.values[i], multiplier.values[i], shift.values[i]) > 0)) value = 0;
      value = fmaf(a.values[i], value, fmaf(b.values[i], at.values[i], c.values[i]));
    }
    return from_floats<T>(gradient);
  }
};

// Copies dz, y and x of this block's tiles and forms the gradient, one tile ahead of the products.
template <class T, int out, int in, bool relu>
class Former {
 public:
  using Plan = Tiling<out, in>;

  __device__ Former(const PointwiseBackwardOperands& operands, int64_t rows, unsigned char* shared)
      : operands_(operands),
        rows_(rows),
        shared_(shared),
        form_(operands.state, relu, chunk() * 8) {
    copy_x(0);
    for (int step = 0; step < Plan::ring; ++step) copy_step(step);
  }

  __device__ void form_tile(int turn) {
#pragma unroll
    for (int step = 0; step < Plan::steps; ++step) {
      wait_for_copies<Plan::ring - 1>();
      form_step(turn, step);
      if (step == 0) copy_x(turn + 1);
      copy_step(turn * Plan::steps + step + Plan::ring);
    }
    show_writes_to_products();
  }

 private:
  __device__ static int chunk() { return static_cast<int>(threadIdx.x) % Plan::row_chunks; }
  __device__ static int row(int i) {
    return static_cast<int>(threadIdx.x) / Plan::row_chunks + i * Plan::rows_at_once;
  }
  __device__ int64_t first_row(int turn) const {
    return (blockIdx.x + int64_t{turn} * gridDim.x) * tile_rows;
  }
  __device__ unsigned char* raw(int step, int i) const {
    return shared_ + Plan::raw + step % Plan::ring * Plan::step_bytes +
           (2 * i * formers + threadIdx.x) * 16;
  }

  __device__ void copy_step(int step) {
    const int64_t tile = first_row(step / Plan::steps);
    const int64_t first = tile + step % Plan::steps * Plan::step_rows;
#pragma unroll
    for (int i = 0; i < Plan::chunks; ++i) {
      const int64_t at = first + row(i);
      if (tile >= rows_) break;
      const bool inside = at < rows_;
      const int64_t offset = ((inside ? at : 0) * Plan::row_chunks + chunk()) * 16;
      copy_chunk(raw(step, i), static_cast<const char*>(operands_.dz) + offset, inside);
      copy_chunk(raw(step, i) + formers * 16, static_cast<const char*>(operands_.y) + offset,
                 inside);
    }
    copies_end();
  }

  // Part of the next group of copies.
  __device__ void copy_x(int turn) {
    constexpr int row_chunks = in / 8, rows_at_once = formers / row_chunks;
    const int64_t first = first_row(turn);
    if (first >= rows_) return;
    unsigned char* tile = shared_ + Plan::x + turn % Plan::x_slots * Plan::in_panels * panel_bytes;
    const int chunk = static_cast<int>(threadIdx.x) % row_chunks;
#pragma unroll
    for (int i = 0; i < tile_rows / rows_at_once; ++i) {
      const int row = static_cast<int>(threadIdx.x) / row_chunks + i * rows_at_once;
      const bool inside = first + row < rows_;
      copy_chunk(tile + chunk / 8 * panel_bytes + panel_offset(row, chunk % 8),
                 static_cast<const char*>(operands_.x) +
                     ((inside ? first + row : 0) * row_chunks + chunk) * 16,
                 inside);
    }
  }

  __device__ void form_step(int turn, int step) {
    unsigned char* tile =
        shared_ + Plan::gradient + turn % Plan::gradient_slots * Plan::out_panels * panel_bytes;
    Pack<T> dz[Plan::chunks], y[Plan::chunks];
#pragma unroll
    for (int i = 0; i < Plan::chunks; ++i) {
      const unsigned char* at = raw(turn * Plan::steps + step, i);
      dz[i] = *reinterpret_cast<const Pack<T>*>(at);
      y[i] = *reinterpret_cast<const Pack<T>*>(at + formers * 16);
    }
#pragma unroll
    for (int i = 0; i < Plan::chunks; ++i) {
      const int offset =
          chunk() / 8 * panel_bytes + panel_offset(step * Plan::step_rows + row(i), chunk() % 8);
      *reinterpret_cast<Pack<T>*>(tile + offset) = form_.template apply<relu>(dz[i], y[i]);
    }
  }

  const PointwiseBackwardOperands& operands_;
  int64_t rows_;
  unsigned char* shared_;
  GradientForm<T> form_;
};

// dx of a tile = gradient x weights.
template <class T, int out, int in>
struct DataGradient {
  static constexpr int panels = in / panel_columns;
  float sums[panels][32];

  __device__ void begin(const unsigned char* gradient, const unsigned char*,
                        const unsigned char* weights) {
    products_begin();
#pragma unroll
    for (int k = 0; k < out / 16; ++k) {
      const uint64_t a = panel_operand(gradient + k / 4 * panel_bytes + k % 4 * 32);
#pragma unroll
      for (int panel = 0; panel < panels; ++panel) {
        const uint64_t b = panel_operand(weights + (panel * out + k * 16) * panel_row_bytes);
        multiply_64x64x16<T, false, true>(sums[panel], a, b, k > 0);
      }
    }
    products_end();
  }
  __device__ void wait() {
    wait_for_products();
#pragma unroll
    for (auto& panel : sums) use_results(panel);
  }
  __device__ void store(const PointwiseBackwardOperands& operands, int64_t first_row,
                        int64_t rows) {
    const int thread = threadIdx.x % group_threads;
    T* dx = static_cast<T*>(operands.dx) + thread % 4 * 16;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t row = first_row + thread / 32 * 16 + half * 8 + thread % 32 / 4;
      if (row >= rows) continue;
#pragma unroll
      for (int part = 0; part < panels * 2; ++part) {
        Channels<T> values;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const int j = part % 2 * 4 + i / 2;
          values.values[i] = sums[part / 2][4 * j + 2 * half + i % 2];
        }
        store_pack(dx + row * in + part / 2 * panel_columns + part % 2 * 8, from_floats<T>(values));
      }
    }
  }
  __device__ void finish(const PointwiseBackwardOperands&) {}
};

// The weight gradient, added up over this block's tiles: the side of 64 channels x the other.
template <class T, int out, int in>
struct WeightGradient {
  static constexpr int panels = wide_panels(out, in);
  float sums[panels][32] = {};

  __device__ void begin(const unsigned char* gradient, const unsigned char* x,
                        const unsigned char*) {
    const unsigned char* narrow = out < in ? gradient : x;
    const unsigned char* wide = out < in ? x : gradient;
    products_begin();
#pragma unroll
    for (int k = 0; k < tile_rows / 16; ++k) {
      const uint64_t a = panel_operand(narrow + k * 16 * panel_row_bytes);
#pragma unroll
      for (int panel = 0; panel < panels; ++panel) {
        const uint64_t b = panel_operand(wide + panel * panel_bytes + k * 16 * panel_row_bytes);
        multiply_64x64x16<T, true, true>(sums[panel], a, b, true);
      }
    }
    products_end();
  }
  __device__ void wait() { wait_for_products(); }
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

// Multiplies tile after tile; all threads of the block meet before a tile and after the last.
template <class T, int out, int in, class Products>
__device__ void multiply_tiles(const PointwiseBackwardOperands& operands, int64_t rows,
                               const unsigned char* shared) {
  using Plan = Tiling<out, in>;
  Products products;
  const int64_t stride = int64_t{gridDim.x} * tile_rows;
  int turn = 0;
  for (int64_t row = int64_t{blockIdx.x} * tile_rows; row < rows; row += stride, ++turn) {
    products.begin(
        shared + Plan::gradient + turn % Plan::gradient_slots * Plan::out_panels * panel_bytes,
        shared + Plan::x + turn % Plan::x_slots * Plan::in_panels * panel_bytes,
        shared + Plan::weights);
    products.wait();
    __syncthreads();
    products.store(operands, row, rows);
  }
  products.finish(operands);
}

#endif  // NM_HAS_WGMMA

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
    give_registers<former_registers>();
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
  take_registers<multiplier_registers>();
  load_weights<T, out, in>(shared + Tiling<out, in>::weights,
                           static_cast<const T*>(operands.weights));
  show_writes_to_products();
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

}  // namespace nearmetal
