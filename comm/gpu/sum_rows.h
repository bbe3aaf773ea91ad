// The sum of rows of values, one of each rank, on a GPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "models/training_options.h"

namespace nearmetal {

/// One row of values for each rank; the values of a row lie one after another.
struct Rows {
  const void* data = nullptr;  // aligned to 16 bytes
  int64_t stride = 0;          // elements from a row to the next, a multiple of 16 bytes
  int count = 0;
  int own = 0;           // of this rank: instead of the row, what is in the place of the sums
  int64_t elements = 0;  // of a row, a multiple of 16 bytes, too
};

/// out[i] = the sum over all rows of element i, in their order: added in fp32, rounded once to
/// `type` (fp32, bf16 or fp16). `out` is aligned to 16 bytes. In small blocks, which find room
/// beside those of the backward pass.
void launch_sum_rows(Precision type, const Rows& rows, void* out, cudaStream_t stream);

}  // namespace nearmetal
