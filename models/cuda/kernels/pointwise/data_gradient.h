// The gradient at the convolution's input in the fused backward kernel: as the product leaves it,
// or joined with that of another consumer (device code).
#pragma once

#include "models/cuda/kernels/pointwise/backward_tiles.h"

namespace nearmetal::cuda::pointwise {

#ifdef NM_HAS_WGMMA

// Where the operands of the products of a tile lie in shared memory.
struct TilePanels {
  const unsigned char *gradient, *x, *weights;
};

// dx of a tile = gradient x weights, some columns after the others. A thread's results lie in two
// rows, halves; of each panel it has two parts of 8 neighbouring channels, 32 apart, so that the
// four lanes of a row store 64 bytes at once.
template <class T, int out, int in>
class DataGradient {
 public:
  static constexpr int columns = Roles<out, in>::wide ? 64 : product_columns(in);
  static constexpr int products = in / columns;
  static constexpr int parts = columns / 32;  // of a product

  __device__ DataGradient(const PointwiseBackwardOperands& operands, int rows)
      : dx_(static_cast<T*>(operands.dx) + Slice<in>::first()), rows_(rows) {}

  __device__ static int row(int half) {
    const int thread = static_cast<int>(threadIdx.x) % group_threads;
    return thread / 32 * 16 + half * 8 + thread % 32 / 4;
  }
  // A part's place in its panel, in chunks of 8 channels.
  __device__ static int chunk(int part) { return static_cast<int>(threadIdx.x) % 4 + part % 2 * 4; }
  __device__ static int channel(int part) { return part / 2 * panel_columns + chunk(part) * 8; }

  __device__ void multiply(const TilePanels& tile, int product) {
    const uint64_t first_a = panel_operand(tile.gradient);
    const uint64_t first_b =
        panel_operand(tile.weights + product * columns / panel_columns * out * panel_row_bytes,
                      out * panel_row_bytes);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < out / 16; ++k) {
      const uint64_t a = operand_behind(first_a, k / 4 * panel_bytes + k % 4 * 32);
      const uint64_t b = operand_behind(first_b, k * 16 * panel_row_bytes);
      if constexpr (columns == 64) {
        wgmma_m64n64k16<T, false, true>(sums_, a, b, k > 0);
      } else {
        wgmma_m64n128k16<T, false, true>(sums_, a, b, k > 0);
      }
    }
    wgmma_commit_group();
    wgmma_wait_all();
    use_results(sums_);
  }
  __device__ Channels<T> values(int part, int half) const {
    Channels<T> values;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      values.values[i] = sums_[4 * (part * 4 + i / 2) + 2 * half + i % 2];
    }
    return values;
  }

  // What reads the panels of a tile; the last product is stored when others may overwrite them.
  __device__ void run(const TilePanels& tile, int first_row) {
#pragma unroll
    for (int product = 0; product < products; ++product) {
      if (product > 0) store(product - 1, first_row);
      multiply(tile, product);
    }
  }
  __device__ void after(int first_row) { store(products - 1, first_row); }
  __device__ void finish(const PointwiseBackwardOperands&) {}

 private:
  __device__ void store(int product, int first_row) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = first_row + row(half);
      if (at >= rows_) continue;
#pragma unroll
      for (int part = 0; part < parts; ++part) {
        T* to = dx_ + int64_t{at} * Slice<in>::columns() + product * columns + channel(part);
        *reinterpret_cast<uint4*>(to) = packed<T>(values(part, half));
      }
    }
  }

  T* dx_;
  int rows_;
  float sums_[columns / 2];
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

// All bits of each of two neighbours that is above 0.
template <class T>
__device__ uint32_t above_zero(uint32_t two) {
  if constexpr (std::is_same_v<T, __half>) {
    return __hgt2_mask(*reinterpret_cast<const __half2*>(&two), __half2{});
  } else {
    return __hgt2_mask(*reinterpret_cast<const __nv_bfloat162*>(&two), __nv_bfloat162{});
  }
}

// The gradient before the ReLU whose output is x: where x > 0, dx plus that of another consumer.
// Every warp copies the other gradient of its own 16 rows, a panel as soon as that of the tile
// before is used up, so that each is under way for the time of a tile. Behind the last row x is 0.
template <class T, int out, int in>
class JoinedGradient {
 public:
  using Product = DataGradient<T, out, in>;
  static constexpr int panels = in / panel_columns;
  static constexpr int product_panels = Product::columns / panel_columns;

  __device__ JoinedGradient(const PointwiseBackwardOperands& operands, const PixelPlaces& places,
                            int rows, unsigned char* shared)
      : product_(operands, rows),
        operands_(operands),
        rows_(rows),
        copied_(shared + Tiling<out, in>::second),
        packs_(shared_address(shared + Tiling<out, in>::second_packs) + lane_of_packs() * 16) {
    const int first = static_cast<int>(blockIdx.x) * tile_rows + copied_row(0);
    const auto pack = [&](int row) {
      return static_cast<uint32_t>(second_pack<in>(operands, places, row, rows));
    };
    const uint4 packs = {pack(first), pack(first + 4), pack(first + 8), pack(first + 12)};
#pragma unroll
    for (int panel = 0; panel < panels; ++panel) copy(panel, packs);
  }

  __device__ void run(const TilePanels& tile, int first_row) {
    packs_ ^= packs_bytes;  // those of the next tile
#pragma unroll
    for (int product = 0; product < Product::products; ++product) {
      product_.multiply(tile, product);
#pragma unroll
      for (int i = 0; i < product_panels; ++i) {
        const int panel = product * product_panels + i;
        cp_async_wait_group<panels - 1>();
        __syncwarp();  // all lanes' copies have come
        join(tile.x, first_row, panel, 2 * i);
        join(tile.x, first_row, panel, 2 * i + 1);
        __syncwarp();  // all lanes have read the panel
        copy(panel, load_shared_16(packs_));
      }
    }
  }
  __device__ void after(int) {}
  // Behind those of the weight gradient, [block][warp][channel].
  __device__ void finish(const PointwiseBackwardOperands& operands) {
    const int warp = threadIdx.x % group_threads / 32, lane = threadIdx.x % 32;
    float* destination = operands.partial_sums + int64_t{gridDim.x} * out * Slice<in>::columns() +
                         (int64_t{blockIdx.x} * group_warps + warp) * Slice<in>::columns() +
                         Slice<in>::first() + lane / 4;
#pragma unroll
    for (int part = 0; part < 2 * panels; ++part) {
      destination[Product::channel(part)] = sums_[part];
    }
  }

 private:
  static constexpr int copied_rows = 4;  // of a lane and tile

  // The copied chunks of a row are exchanged so that the reads of two rows meet no bank conflicts.
  __device__ static int copied_offset(int row, int chunk) {
    return row * panel_row_bytes + ((chunk ^ (row & 1) << 2) << 4);
  }
  __device__ static int lane_of_packs() {
    return static_cast<int>(threadIdx.x) % group_threads / 8;
  }
  __device__ static int copied_row(int i) {
    const int thread = static_cast<int>(threadIdx.x) % group_threads;
    return thread / 32 * 16 + thread % 32 / 8 + i * 4;
  }

  // `part`: of the product.
  __device__ void join(const unsigned char* x, int first_row, int panel, int part) {
    constexpr int eight_rows = 8 * panel_row_bytes;
    const int row = Product::row(0), chunk = Product::chunk(part);
    const uint32_t copied = shared_address(copied_ + copied_offset(row, chunk));
    const uint32_t mask = shared_address(x + panel_offset(row, chunk));
    T* to = static_cast<T*>(operands_.dx) + int64_t{first_row + row} * Slice<in>::columns() +
            Slice<in>::first() + Product::channel(0);
    Channels<T> total;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 at = load_shared_16(mask + panel * panel_bytes + half * eight_rows);
      const auto second =
          floats_of<T>(load_shared_16(copied + panel * panel_bytes + half * eight_rows));
      const Channels<T> values = product_.values(part, half);
      const uint32_t of_relu[4] = {at.x, at.y, at.z, at.w};
      uint32_t joined[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        joined[i] = two_rounded<T>(values.values[2 * i] + second.values[2 * i],
                                   values.values[2 * i + 1] + second.values[2 * i + 1]) &
                    above_zero<T>(of_relu[i]);
        const float2 two = two_floats<T>(joined[i]);
        total.values[2 * i] = half == 0 ? two.x : total.values[2 * i] + two.x;
        total.values[2 * i + 1] = half == 0 ? two.y : total.values[2 * i + 1] + two.y;
      }
      if (first_row + row + half * 8 < rows_) {
        *reinterpret_cast<uint4*>(to + half * 8 * Slice<in>::columns() + panel * panel_columns +
                                  part % 2 * 32) = {joined[0], joined[1], joined[2], joined[3]};
      }
    }
    sums_[2 * panel + part % 2] += sum_of_rows(total);
  }

  // `packs`: of this lane's rows, as second_pack() has them.
  __device__ void copy(int panel, const uint4& packs) const {
    const int chunk = static_cast<int>(threadIdx.x) % 8;
    const auto* from = static_cast<const uint4*>(operands_.dx_second) +
                       (Slice<in>::first() + panel * panel_columns) / 8 + chunk;
    const uint32_t pack[copied_rows] = {packs.x, packs.y, packs.z, packs.w};
#pragma unroll
    for (int i = 0; i < copied_rows; ++i) {
      const auto at = static_cast<int>(pack[i]);
      cp_async_16(copied_ + panel * panel_bytes + copied_offset(copied_row(i), chunk),
                  from + max(at, 0), at >= 0);
    }
    cp_async_commit_group();
  }

  Product product_;
  const PointwiseBackwardOperands& operands_;
  int rows_;
  unsigned char* copied_;
  uint32_t packs_;               // an address in shared memory
  float sums_[2 * panels] = {};  // of what is stored of the block's tiles, a channel each
};

#endif  // NM_HAS_WGMMA

}  // namespace nearmetal::cuda::pointwise
