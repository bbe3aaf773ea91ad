// The gradient at the convolution's input in the fused backward kernel: as the product leaves it,
// or joined with that of another consumer (device code).
#pragma once

#include "models/cuda/kernels/pack.h"
#include "models/cuda/kernels/pointwise/backward.h"
#include "models/cuda/kernels/pointwise/backward_tiles.h"
#include "models/cuda/kernels/wgmma.h"

namespace nearmetal::cuda::pointwise {

#ifdef NM_HAS_WGMMA

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
