// How the fused backward kernel brings its operands to shared memory, and the gradient that it
// forms on the way (device code).
#pragma once

#include "models/cuda/kernels/pack.h"
#include "models/cuda/kernels/pointwise/backward.h"
#include "models/cuda/kernels/wgmma.h"

namespace nearmetal::cuda::pointwise {

inline constexpr int tile_rows = 64;
inline constexpr int panel_bytes = tile_rows * panel_row_bytes;
inline constexpr int group_threads = 128;  // of a warpgroup
inline constexpr int group_warps = 4;
inline constexpr int formers = 2 * group_threads;      // threads that form the gradient
inline constexpr int multipliers = 2 * group_threads;  // threads that hold the products
inline constexpr int threads = formers + multipliers;
// Registers of a thread, together all that a multiprocessor has.
inline constexpr int former_registers = 88;
inline constexpr int multiplier_registers = 168;

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
  static constexpr int second = raw + ring * step_bytes;  // a tile, where a gradient is joined
  static constexpr int bytes = second;
  static constexpr int joined_bytes = second + in_panels * panel_bytes;
};

// The gradient at the convolution's output: given, or formed from that behind the batch norm, or
// behind its ReLU.
enum class Form { none, norm, norm_relu };

#ifdef NM_HAS_WGMMA

// Weights [out, in] as panels of 64 input channels whose columns are exchanged so that the columns
// of one thread's results are 16 neighbouring channels (see wgmma_m64n64k16).
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

  __device__ GradientForm(const BatchNormState& state, Form form, int channel) {
    if (form == Form::none) return;
    a = Channels<T>::load(state.a + channel);
    b = Channels<T>::load(state.b + channel);
    c = Channels<T>::load(state.c + channel);
    if (form == Form::norm) return;
    multiplier = Channels<T>::load(state.multiplier + channel);
    shift = Channels<T>::load(state.shift + channel);
  }
  template <Form form>
  __device__ Pack<T> apply(const Pack<T>& dz, const Pack<T>& y) const {
    constexpr bool relu = form == Form::norm_relu;
    if constexpr (form == Form::none) return dz;
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
template <class T, int out, int in, Form form>
class Former {
 public:
  using Tiles = Tiling<out, in>;

  __device__ Former(const PointwiseBackwardOperands& operands, int64_t rows, unsigned char* shared)
      : operands_(operands),
        rows_(rows),
        shared_(shared),
        form_(operands.state, form, chunk() * 8) {
    copy_x(0);
    for (int step = 0; step < Tiles::ring; ++step) copy_step(step);
  }

  __device__ void form_tile(int turn) {
#pragma unroll
    for (int step = 0; step < Tiles::steps; ++step) {
      cp_async_wait_group<Tiles::ring - 1>();
      form_step(turn, step);
      if (step == 0) copy_x(turn + 1);
      copy_step(turn * Tiles::steps + step + Tiles::ring);
    }
    fence_async_proxy();
  }

 private:
  __device__ static int chunk() { return static_cast<int>(threadIdx.x) % Tiles::row_chunks; }
  __device__ static int row(int i) {
    return static_cast<int>(threadIdx.x) / Tiles::row_chunks + i * Tiles::rows_at_once;
  }
  __device__ int64_t first_row(int turn) const {
    return (blockIdx.x + int64_t{turn} * gridDim.x) * tile_rows;
  }
  __device__ unsigned char* raw(int step, int i) const {
    return shared_ + Tiles::raw + step % Tiles::ring * Tiles::step_bytes +
           (2 * i * formers + threadIdx.x) * 16;
  }

  __device__ void copy_step(int step) {
    const int64_t tile = first_row(step / Tiles::steps);
    const int64_t first = tile + step % Tiles::steps * Tiles::step_rows;
#pragma unroll
    for (int i = 0; i < Tiles::chunks; ++i) {
      const int64_t at = first + row(i);
      if (tile >= rows_) break;
      const bool inside = at < rows_;
      const int64_t offset = ((inside ? at : 0) * Tiles::row_chunks + chunk()) * 16;
      cp_async_16(raw(step, i), static_cast<const char*>(operands_.dz) + offset, inside);
      if constexpr (form != Form::none) {
        cp_async_16(raw(step, i) + formers * 16, static_cast<const char*>(operands_.y) + offset,
                    inside);
      }
    }
    cp_async_commit_group();
  }

  // Part of the next group of copies.
  __device__ void copy_x(int turn) {
    constexpr int row_chunks = in / 8, rows_at_once = formers / row_chunks;
    const int64_t first = first_row(turn);
    if (first >= rows_) return;
    unsigned char* tile =
        shared_ + Tiles::x + turn % Tiles::x_slots * Tiles::in_panels * panel_bytes;
    const int chunk = static_cast<int>(threadIdx.x) % row_chunks;
#pragma unroll
    for (int i = 0; i < tile_rows / rows_at_once; ++i) {
      const int row = static_cast<int>(threadIdx.x) / row_chunks + i * rows_at_once;
      const bool inside = first + row < rows_;
      cp_async_16(tile + chunk / 8 * panel_bytes + panel_offset(row, chunk % 8),
                  static_cast<const char*>(operands_.x) +
                      ((inside ? first + row : 0) * row_chunks + chunk) * 16,
                  inside);
    }
  }

  __device__ void form_step(int turn, int step) {
    unsigned char* tile =
        shared_ + Tiles::gradient + turn % Tiles::gradient_slots * Tiles::out_panels * panel_bytes;
    Pack<T> dz[Tiles::chunks], y[Tiles::chunks];
#pragma unroll
    for (int i = 0; i < Tiles::chunks; ++i) {
      const unsigned char* at = raw(turn * Tiles::steps + step, i);
      dz[i] = *reinterpret_cast<const Pack<T>*>(at);
      if constexpr (form != Form::none) {
        y[i] = *reinterpret_cast<const Pack<T>*>(at + formers * 16);
      }
    }
#pragma unroll
    for (int i = 0; i < Tiles::chunks; ++i) {
      const int offset =
          chunk() / 8 * panel_bytes + panel_offset(step * Tiles::step_rows + row(i), chunk() % 8);
      *reinterpret_cast<Pack<T>*>(tile + offset) = form_.template apply<form>(dz[i], y[i]);
    }
  }

  const PointwiseBackwardOperands& operands_;
  int64_t rows_;
  unsigned char* shared_;
  GradientForm<T> form_;
};

// The gradient at the convolution's input in the fused backward kernel: as the product leaves it,
// or joined with that of another consumer (device code).

// dx of a tile = gradient x weights. A thread's results lie in two rows, halves; of each panel it
// has 16 neighbouring channels, two parts of 8.
template <class T, int out, int in>
class DataGradient {
 public:
  static constexpr int panels = in / panel_columns;
  static constexpr int parts = panels * 2;

  __device__ static int row(int half) {
    const int thread = threadIdx.x % group_threads;
    return thread / 32 * 16 + half * 8 + thread % 32 / 4;
  }
  __device__ static int chunk(int part) { return threadIdx.x % 4 * 2 + part % 2; }  // of the panel
  __device__ static int channel(int part) { return part / 2 * panel_columns + chunk(part) * 8; }

  __device__ void begin(const unsigned char* gradient, const unsigned char*,
                        const unsigned char* weights) {
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < out / 16; ++k) {
      const uint64_t a = panel_operand(gradient + k / 4 * panel_bytes + k % 4 * 32);
#pragma unroll
      for (int panel = 0; panel < panels; ++panel) {
        const uint64_t b = panel_operand(weights + (panel * out + k * 16) * panel_row_bytes);
        wgmma_m64n64k16<T, false, true>(sums_[panel], a, b, k > 0);
      }
    }
    wgmma_commit_group();
  }
  __device__ void wait(int64_t) {
    wgmma_wait_all();
#pragma unroll
    for (auto& panel : sums_) use_results(panel);
  }
  __device__ Channels<T> values(int part, int half) const {
    Channels<T> values;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      values.values[i] = sums_[part / 2][4 * (part % 2 * 4 + i / 2) + 2 * half + i % 2];
    }
    return values;
  }
  __device__ void store(const PointwiseBackwardOperands& operands, int64_t first_row,
                        int64_t rows) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t at = first_row + row(half);
      if (at >= rows) continue;
#pragma unroll
      for (int part = 0; part < parts; ++part) {
        store_pack(static_cast<T*>(operands.dx) + at * in + channel(part),
                   from_floats<T>(values(part, half)));
      }
    }
  }
  __device__ void finish(const PointwiseBackwardOperands&) {}

 private:
  float sums_[panels][32];
};

// Adds the 8 rows of a warp's results, each of which lies in 4 neighbouring lanes; lane L gets the
// sum of values[L / 4].
template <class T>
__device__ float sum_of_rows(Channels<T> rows) {
  const int lane = threadIdx.x % warp_lanes;
#pragma unroll
  for (int count = 4; count > 0; count /= 2) {
    // Of each pair a lane keeps one and adds what its partner has of it.
    const bool upper = (lane & 4 * count) != 0;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const float low = rows.values[i], high = rows.values[i + count];
      const float kept = upper ? high : low, given = upper ? low : high;
      rows.values[i] = kept + __shfl_xor_sync(0xffffffff, given, 4 * count);
    }
  }
  return rows.values[0];
}

// The gradient before the ReLU whose output is x: where x > 0, dx plus that of another consumer.
// Every warp copies the other gradient of its own 16 rows, a panel as soon as that of the tile
// before is used up, so that each is under way for the time of a tile. Behind the last row x is 0.
template <class T, int out, int in>
class JoinedGradient {
 public:
  using Product = DataGradient<T, out, in>;
  static constexpr int panels = Product::panels;

  __device__ JoinedGradient(const PointwiseBackwardOperands& operands, int64_t rows,
                            unsigned char* shared)
      : operands_(operands), rows_(rows), copied_(shared + Tiling<out, in>::second) {
#pragma unroll
    for (int panel = 0; panel < panels; ++panel) {
      copy(int64_t{blockIdx.x} * tile_rows, panel);
    }
  }

  __device__ void begin(const unsigned char* gradient, const unsigned char* x,
                        const unsigned char* weights) {
    x_ = x;
    product_.begin(gradient, x, weights);
  }
  // Stores before the barrier, behind which the panels of x may be overwritten.
  __device__ void wait(int64_t first_row) {
    product_.wait(first_row);
    T* dx =
        static_cast<T*>(operands_.dx) + (first_row + Product::row(0)) * in + Product::channel(0);
    const int64_t left = rows_ - first_row - Product::row(0);
#pragma unroll
    for (int panel = 0; panel < panels; ++panel) {
      cp_async_wait_group<panels - 1>();
      __syncwarp();  // all lanes' copies have come
#pragma unroll
      for (int part = 2 * panel; part < 2 * panel + 2; ++part) {
        Channels<T> total{};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const Channels<T> values = joined(part, half);
          if (half * 8 < left) {
            store_pack(dx + half * 8 * in + panel * panel_columns + part % 2 * 8,
                       from_floats<T>(values));
          }
#pragma unroll
          for (int i = 0; i < 8; ++i) total.values[i] += values.values[i];
        }
        sums_[part] += sum_of_rows(total);
      }
      __syncwarp();  // all lanes have read the panel
      copy(first_row + int64_t{gridDim.x} * tile_rows, panel);
    }
  }
  __device__ void store(const PointwiseBackwardOperands&, int64_t, int64_t) {}
  // Behind those of the weight gradient, [block][warp][channel].
  __device__ void finish(const PointwiseBackwardOperands& operands) {
    const int warp = threadIdx.x % group_threads / 32, lane = threadIdx.x % 32;
    float* destination = operands.partial_sums + int64_t{gridDim.x} * out * in +
                         (int64_t{blockIdx.x} * group_warps + warp) * in + lane / 4;
#pragma unroll
    for (int part = 0; part < Product::parts; ++part) {
      destination[Product::channel(part)] = sums_[part];
    }
  }

 private:
  __device__ static Pack<T> pack_of(const unsigned char* tile, int part, int half) {
    const int offset = panel_offset(Product::row(0), Product::chunk(part));
    return *reinterpret_cast<const Pack<T>*>(tile + offset + part / 2 * panel_bytes +
                                             half * 8 * panel_row_bytes);
  }
  __device__ Channels<T> joined(int part, int half) const {
    const Channels<T> second = to_floats(pack_of(copied_, part, half));
    const Channels<T> x = to_floats(pack_of(x_, part, half));
    Channels<T> values = product_.values(part, half);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      values.values[i] = x.values[i] > 0 ? values.values[i] + second.values[i] : 0.0f;
    }
    return values;
  }
  __device__ void copy(int64_t first_row, int panel) {
    const int lane = threadIdx.x % 32, chunk = lane % 8;
    const int first = threadIdx.x % group_threads / 32 * 16 + lane / 8;
    const T* from = static_cast<const T*>(operands_.dx_second) + (first_row + first) * in +
                    panel * panel_columns + chunk * 8;
    const int64_t left = rows_ - first_row - first;
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
      if (i >= left) break;
      cp_async_16(copied_ + panel * panel_bytes + panel_offset(first + i, chunk), from + i * in,
                  true);
    }
    cp_async_commit_group();
  }

  Product product_;
  const PointwiseBackwardOperands& operands_;
  int64_t rows_;
  unsigned char* copied_;
  const unsigned char* x_ = nullptr;
  float sums_[Product::parts] = {};  // of the values of the block's tiles, a channel each
};

#endif  // NM_HAS_WGMMA

}  // namespace nearmetal::cuda::pointwise
