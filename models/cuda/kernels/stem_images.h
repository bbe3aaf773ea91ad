// Rows of images in shared memory as the tensor cores read the windows of a 7x7 convolution of
// stride 2 from them (device code).
#pragma once

#include "models/cuda/kernels/stem.h"
#include "models/cuda/kernels/wgmma.h"

namespace nearmetal::cuda {

inline constexpr int stem_kernel = 7;
inline constexpr int stem_padding = 3;
inline constexpr int stem_window_pixels = 8;   // of a window row: one more than are used, in front
inline constexpr int stem_tile_columns = 112;  // results of a row that are computed at once
inline constexpr int stem_row_chunks =
    stem_tile_columns + 4;  // of two pixels, one more than needed
inline constexpr int stem_row_bytes = stem_row_chunks * 16;
// The last windows of the last row are followed by this much, if one takes them for apart.
inline constexpr int stem_overread_bytes = 2048;

/// Rows of the images under `rows` rows of results.
constexpr int stem_image_rows(int rows) { return 2 * rows + stem_kernel - 2; }

#ifdef NM_HAS_WGMMA

/// Copies what is under the results from (row, column) on, by thread `thread` of `threads`. The
/// windows of result (row + i, column + j) begin at row 2 i, chunk j of `shared`.
template <class T>
__device__ void copy_stem_images(unsigned char* shared, const T* images, const StemShape& shape,
                                 int64_t image, int row, int column, int rows, int thread,
                                 int threads) {
  const int first_row = 2 * row - stem_padding;
  const int first_column = 2 * column - stem_padding - 1;
  for (int i = thread; i < rows * stem_row_chunks; i += threads) {
    const int y = first_row + i / stem_row_chunks, x = first_column + i % stem_row_chunks * 2;
    const bool inside = y >= 0 && y < shape.input_height && x >= 0 && x < shape.input_width;
    const int64_t pixel = inside ? (image * shape.input_height + y) * shape.input_width + x : 0;
    cp_async_16(shared + i * 16, images + pixel * stem_stored_channels, inside);
  }
}

#endif  // NM_HAS_WGMMA

}  // namespace nearmetal::cuda
