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

#endif  // NM_HAS_WGMMA

}  // namespace nearmetal::cuda::pointwise
