// The products of pointwise_backward.cu (device code).
#pragma once

#include "models/cuda/kernels/pointwise_tiles.h"

namespace nearmetal::cuda::pointwise {

inline constexpr int wide_panels(int out, int in) { return std::max(out, in) / panel_columns; }

#ifdef NM_HAS_WGMMA

template <class T, int out, int in>
struct DataGradient {
  static constexpr int panels = in / panel_columns;
  float sums[panels][32];

  __device__ void begin(const unsigned char* gradient, const unsigned char*,
                        const unsigned char* weights) {
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < out / 16; ++k) {
      const uint64_t a = panel_operand(gradient + k / 4 * panel_bytes + k % 4 * 32);
#pragma unroll
      for (int panel = 0; panel < panels; ++panel) {
        const uint64_t b = panel_operand(weights + (panel * out + k * 16) * panel_row_bytes);
        wgmma_m64n64k16<T, false, true>(sums[panel], a, b, k > 0);
      }
    }
    wgmma_commit_group();
  }
  __device__ void wait() {
    wgmma_wait_all();
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
  __device__ void wait() { wgmma_wait_all(); }
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

}  // namespace nearmetal::cuda::pointwise
