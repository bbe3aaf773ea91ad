// How the fused backward kernel brings its operands to shared memory, and the gradient that it
// forms on the way (device code).
#pragma once

#include "models/cuda/kernels/pack.h"
#include "models/cuda/kernels/pixel_places.h"
#include "models/cuda/kernels/pointwise/backward.h"
#include "models/cuda/kernels/wgmma.h"

namespace nearmetal::cuda::pointwise {

inline constexpr int tile_rows = 64;
inline constexpr int panel_bytes = tile_rows * panel_row_bytes;
inline constexpr int group_threads = 128;  // of a warpgroup
inline constexpr int group_warps = 4;
inline constexpr int groups = 4;
inline constexpr int threads = groups * group_threads;

// What the warpgroups of a block do, in this order: form the gradient, multiply for dx (one), and
// hold the weight gradient. The registers of a thread are together all that a multiprocessor has.
template <int out, int in>
struct Roles {
  static constexpr bool wide = out > 64 && in > 64;
  static constexpr int formers = (wide ? 1 : 2) * group_threads;
  static constexpr int multipliers = threads - formers;
  static constexpr int first_weight_group = formers / group_threads + 1;
  static constexpr int former_registers = wide ? 88 : 88;
  static constexpr int data_registers = wide ? 104 : 168;
  static constexpr int weight_registers = wide ? 160 : 168;
};

// Columns of one product of the tensor cores, of an operand of so many.
constexpr int product_columns(int columns) { return columns < 128 ? 64 : 128; }

// Where the rows of a tile begin in the gradient of another consumer: a number for each.
inline constexpr int packs_bytes = tile_rows * 4;

// dz and y pass through a ring of steps of a few rows; a thread reads what it has copied itself.
// The gradient formed from them and x are kept as panels for the products.
template <int out, int in>
struct Tiling {
  static constexpr int out_panels = out / panel_columns;
  static constexpr int in_panels = in / panel_columns;
  static constexpr int row_chunks = out / 8;
  static constexpr int formers = Roles<out, in>::formers;
  static constexpr int chunks = out == 256 ? 2 : 1;  // of dz, and of y, per step and thread
  static constexpr int rows_at_once = formers / row_chunks;
  static constexpr int step_rows = chunks * rows_at_once;
  static constexpr int steps = tile_rows / step_rows;               // of a tile
  static constexpr int ring = out == 256 ? 6 : out == 128 ? 8 : 3;  // steps under way
  static constexpr int gradient_slots = 2;
  // An x tile is copied while the gradient of the tile before is formed, or, for want of room, that
  // of its own; it is complete when its own has been formed.
  static constexpr int x_ahead = Roles<out, in>::wide ? 0 : 1;
  static constexpr int x_slots = gradient_slots + x_ahead;
  static_assert(x_ahead == 0 || ring <= 2 * steps - 1);

  // Shared memory.
  static constexpr int step_bytes = 2 * chunks * formers * 16;
  static constexpr int weights = 0;
  static constexpr int gradient = weights + out * in * 2;
  static constexpr int x = gradient + gradient_slots * out_panels * panel_bytes;
  static constexpr int raw = x + x_slots * in_panels * panel_bytes;
  static constexpr int second = raw + ring * step_bytes;  // a tile, where a gradient is joined
  static constexpr int bytes = second;
  static constexpr int second_packs = second + in_panels * panel_bytes;  // of two tiles
  static constexpr int joined_bytes = second_packs + 2 * packs_bytes;
};

// The gradient at the convolution's output: given, or formed from that behind the batch norm, or
// behind its ReLU.
enum class Form { none, norm, norm_relu };

#ifdef NM_HAS_WGMMA

// The input channels of a block: those of the shape, or a slice of them.
template <int in>
struct Slice {
  __device__ static int columns() { return in * static_cast<int>(gridDim.y); }  // of a row
  __device__ static int first() { return in * static_cast<int>(blockIdx.y); }
};
template <>
struct Slice<64> {
  __device__ static constexpr int columns() { return 64; }
  __device__ static constexpr int first() { return 0; }
};

// Where a row of the gradient of another consumer begins, in packs of 8 values; -1: zeros alone.
template <int in>
__device__ int second_pack(const PointwiseBackwardOperands& operands, const PixelPlaces& places,
                           int row, int rows) {
  const bool even_alone = operands.second_at_even_pixels_of.height > 0;
  const int pixel = even_alone ? static_cast<int>(places.even_pixel(row)) : row;
  return row < rows && pixel >= 0 ? pixel * (Slice<in>::columns() / 8) : -1;
}

// Weights [out, in] as panels of 64 input channels whose columns are exchanged so that the columns
// of one thread's results are 8 neighbours of every 32 channels (see wgmma_m64n64k16).
template <class T, int out, int in>
__device__ void load_weights(unsigned char* shared, const T* weights) {
  constexpr int pairs = in / 2;
  for (int i = static_cast<int>(threadIdx.x) - Roles<out, in>::formers; i < out * pairs;
       i += Roles<out, in>::multipliers) {
    const int row = i / pairs, column = i % pairs * 2;
    const int within = column % panel_columns;
    const int chunk = within / 32 * 4 + within % 8 / 2, place = within % 32 / 8 * 2;
    const int offset = column / panel_columns * out * panel_row_bytes + panel_offset(row, chunk) +
                       place * static_cast<int>(sizeof(T));
    *reinterpret_cast<uint32_t*>(shared + offset) = *reinterpret_cast<const uint32_t*>(
        weights + row * Slice<in>::columns() + Slice<in>::first() + column);
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
  __device__ uint4 apply(const uint4& dz, const uint4& y) const {
    constexpr bool relu = form == Form::norm_relu;
    if constexpr (form == Form::none) return dz;
    const Channels<T> at = floats_of<T>(y);
    Channels<T> gradient = floats_of<T>(dz);
#pragma unroll
    for (int i = 0; i < pack_width<T>; ++i) {
      float& value = gradient.values[i];
      if (relu && !(fmaf(at.values[i], multiplier.values[i], shift.values[i]) > 0)) value = 0;
      value = fmaf(a.values[i], value, fmaf(b.values[i], at.values[i], c.values[i]));
    }
    return packed<T>(gradient);
  }
};

// Copies dz, y and x of this block's tiles and forms the gradient, one tile ahead of the products.
template <class T, int out, int in, Form form, bool joined>
class Former {
 public:
  using Tiles = Tiling<out, in>;
  static constexpr int formers = Tiles::formers;

  __device__ Former(const PointwiseBackwardOperands& operands, const PixelPlaces& places, int rows,
                    unsigned char* shared)
      : operands_(operands),
        places_(places),
        rows_(rows),
        shared_(shared),
        form_(operands.state, form, chunk() * 8) {
    if constexpr (Tiles::x_ahead > 0) copy_x(0);
    for (int step = 0; step < Tiles::ring; ++step) copy_step(step);
  }

  __device__ void form_tile(int turn) {
    if constexpr (Tiles::x_ahead == 0) copy_x(turn);
    if constexpr (joined) find_second(turn + 1);
#pragma unroll Tiles::x_ahead == 0 ? 2 : Tiles::steps
    for (int step = 0; step < Tiles::steps; ++step) {
      cp_async_wait_group<Tiles::ring - 1>();
      form_step(turn, step);
      if (Tiles::x_ahead > 0 && step == 0) copy_x(turn + 1);
      copy_step(turn * Tiles::steps + step + Tiles::ring);
    }
    if constexpr (Tiles::x_ahead == 0) cp_async_wait_group<Tiles::steps - 1>();
    fence_async_proxy();
  }

 private:
  __device__ static int chunk() { return static_cast<int>(threadIdx.x) % Tiles::row_chunks; }
  __device__ static int row(int i) {
    return static_cast<int>(threadIdx.x) / Tiles::row_chunks + i * Tiles::rows_at_once;
  }
  __device__ int first_row(int turn) const {
    return static_cast<int>(blockIdx.x + turn * gridDim.x) * tile_rows;
  }
  __device__ unsigned char* raw(int step, int i) const {
    return shared_ + Tiles::raw + step % Tiles::ring * Tiles::step_bytes +
           (2 * i * formers + threadIdx.x) * 16;
  }

  __device__ void copy_step(int step) {
    const int tile = first_row(step / Tiles::steps);
    const int first = tile + step % Tiles::steps * Tiles::step_rows;
#pragma unroll
    for (int i = 0; i < Tiles::chunks; ++i) {
      const int at = first + row(i);
      if (tile >= rows_) break;
      const bool inside = at < rows_;
      const int64_t offset = (int64_t{inside ? at : 0} * Tiles::row_chunks + chunk()) * 16;
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
    const int first = first_row(turn);
    if (first >= rows_) return;
    unsigned char* tile =
        shared_ + Tiles::x + turn % Tiles::x_slots * Tiles::in_panels * panel_bytes;
    const int chunk = static_cast<int>(threadIdx.x) % row_chunks;
#pragma unroll 4
    for (int i = 0; i < tile_rows / rows_at_once; ++i) {
      const int row = static_cast<int>(threadIdx.x) / row_chunks + i * rows_at_once;
      const bool inside = first + row < rows_;
      cp_async_16(tile + chunk / 8 * panel_bytes + panel_offset(row, chunk % 8),
                  static_cast<const T*>(operands_.x) +
                      int64_t{inside ? first + row : 0} * Slice<in>::columns() +
                      Slice<in>::first() + chunk * 8,
                  inside);
    }
  }

  // Four rows of a lane that copies lie side by side.
  __device__ void find_second(int turn) {
    const auto row = static_cast<int>(threadIdx.x);
    if (row >= tile_rows) return;
    const int place = row / 16 * 16 + row % 4 * 4 + row / 4 % 4;
    auto* packs = reinterpret_cast<int*>(shared_ + Tiles::second_packs + turn % 2 * packs_bytes);
    packs[place] = second_pack<in>(operands_, places_, first_row(turn) + row, rows_);
  }

  __device__ void form_step(int turn, int step) {
    unsigned char* tile =
        shared_ + Tiles::gradient + turn % Tiles::gradient_slots * Tiles::out_panels * panel_bytes;
    uint4 dz[Tiles::chunks], y[Tiles::chunks] = {};
#pragma unroll
    for (int i = 0; i < Tiles::chunks; ++i) {
      const uint32_t at = shared_address(raw(turn * Tiles::steps + step, i));
      dz[i] = load_shared_16(at);
      if constexpr (form != Form::none) {
        y[i] = load_shared_16(at + formers * 16);
      }
    }
#pragma unroll
    for (int i = 0; i < Tiles::chunks; ++i) {
      const int offset =
          chunk() / 8 * panel_bytes + panel_offset(step * Tiles::step_rows + row(i), chunk() % 8);
      *reinterpret_cast<uint4*>(tile + offset) = form_.template apply<form>(dz[i], y[i]);
    }
  }

  const PointwiseBackwardOperands& operands_;
  const PixelPlaces& places_;
  int rows_;
  unsigned char* shared_;
  GradientForm<T> form_;
};

#endif  // NM_HAS_WGMMA

}  // namespace nearmetal::cuda::pointwise
