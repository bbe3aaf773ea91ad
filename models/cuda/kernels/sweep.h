// How an elementwise kernel walks an NHWC tensor while each thread keeps its channels (device
// code).
#pragma once

#include <algorithm>
#include <cstdint>

#include "models/cuda/kernels/batch_norm.h"

namespace nearmetal::cuda {

inline constexpr int sweep_threads = 256;
inline constexpr int sweep_blocks_per_multiprocessor = 8;

/// A block covers `lanes` packs of neighbouring channels (512 bytes of a row where the tensor is
/// that wide) and sweep_threads / lanes rows at a time, `unroll` such row groups in a tile.
struct SweepShape {
  int lanes;
  int rows_at_once;
  unsigned slices, chunks;

  SweepShape(Extent extent, int width, int unroll, int multiprocessors) {
    const int packs = extent.channels / width;
    lanes = std::min(packs, 32);
    rows_at_once = sweep_threads / lanes;
    slices = static_cast<unsigned>((packs + lanes - 1) / lanes);
    const int64_t tile_rows = int64_t{rows_at_once} * unroll;
    const int64_t tiles = (extent.rows + tile_rows - 1) / tile_rows;
    const int64_t wanted =
        std::max<int64_t>(1, int64_t{multiprocessors} * sweep_blocks_per_multiprocessor / slices);
    chunks = static_cast<unsigned>(std::min(tiles, wanted));
  }
  dim3 grid() const { return dim3(slices, chunks); }
};

struct SweepPosition {
  bool active;
  int channel;  // first of this thread's pack
  int row;      // in the tile
  int rows_at_once;

  __device__ SweepPosition(const SweepShape& shape, const Extent& extent, int width) {
    const int lane = threadIdx.x % shape.lanes;
    row = threadIdx.x / shape.lanes;
    rows_at_once = shape.rows_at_once;
    channel = (blockIdx.x * shape.lanes + lane) * width;
    active = row < rows_at_once && channel < extent.channels;
  }
};

/// Calls body(offsets, count) for this thread's packs, tile by tile, from the end of the tensor to
/// its beginning: the sweep before went forwards, so that its last rows are still in L2.
template <int unroll, class Body>
__device__ void sweep_backwards(const SweepPosition& position, const Extent& extent, Body body) {
  const int64_t tile_rows = int64_t{position.rows_at_once} * unroll;
  const int64_t tiles = (extent.rows + tile_rows - 1) / tile_rows;
  for (int64_t tile = tiles - 1 - blockIdx.y; tile >= 0; tile -= gridDim.y) {
    int64_t offsets[unroll];
    int count = 0;
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const int64_t row = tile * tile_rows + u * position.rows_at_once + position.row;
      offsets[u] = row * extent.channels + position.channel;
      count += row < extent.rows ? 1 : 0;
    }
    body(offsets, count);
  }
}

}  // namespace nearmetal::cuda
