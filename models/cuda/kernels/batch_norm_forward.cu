#include "models/cuda/kernels/batch_norm.h"
#include "models/cuda/kernels/channel_reduction.h"

namespace nearmetal::cuda {
namespace {

constexpr int statistics_unroll = 8;
constexpr int statistics_blocks = 1;  // at once on a multiprocessor
constexpr int normalise_unroll = 4;

template <class T>
__global__ void __launch_bounds__(reduction_threads, statistics_blocks)
    statistics_kernel(const T* x, Extent extent, Count count, BatchNormState state,
                      ReductionScratch scratch) {
  constexpr int width = pack_width<T>;
  constexpr int tile_rows = slice_rows<T> * statistics_unroll;
  const int channel = blockIdx.x * slice_channels + threadIdx.x % slice_lanes<T> * width;
  float sums[2][width] = {};
  if (channel < extent.channels) {
    for (int64_t tile = blockIdx.y; tile * tile_rows < extent.rows; tile += gridDim.y) {
      const int64_t first = tile * tile_rows + threadIdx.x / slice_lanes<T>;
      Pack<T> packs[statistics_unroll];
#pragma unroll
      for (int u = 0; u < statistics_unroll; ++u) {
        const int64_t row = first + u * slice_rows<T>;
        if (row < extent.rows) packs[u] = load_pack(x + row * extent.channels + channel);
      }
#pragma unroll
      for (int u = 0; u < statistics_unroll; ++u) {
        if (first + u * slice_rows<T> >= extent.rows) break;
        const Channels<T> values = to_floats(packs[u]);
#pragma unroll
        for (int i = 0; i < width; ++i) {
          const float value = values.values[i];
          sums[0][i] += value;
          sums[1][i] = fmaf(value, value, sums[1][i]);
        }
      }
    }
  }
  reduce_channels<T>(sums, extent.channels, scratch, [&](int at, const float(&totals)[2]) {
    ChannelStatistics(state.scale[at], state.bias[at], totals[0], totals[1], count)
        .store(state, at, count);
  });
}

enum class Residual { none, tensor, normalised };

template <class T, Residual residual>
__global__ void __launch_bounds__(sweep_threads)
    normalise_kernel(const T* x, NormInput norm, const T* other, NormInput other_norm, bool relu,
                     uint8_t* mask, T* y, Extent extent, Count count, SweepShape shape) {
  constexpr int width = pack_width<T>;
  const SweepPosition position(shape, extent, width);
  if (!position.active) return;
  const bool store = blockIdx.y == 0 && position.row == 0;
  const NormCoefficients<T> coefficients(norm, count, position.channel, store);
  const NormCoefficients<T> other_coefficients(residual == Residual::normalised ? other_norm : norm,
                                               count, position.channel,
                                               residual == Residual::normalised && store);
  const float floor = relu ? 0.0f : -INFINITY;
  sweep_backwards<normalise_unroll>(
      position, extent, [&](const int64_t(&at)[normalise_unroll], int count) {
        Pack<T> packs[normalise_unroll], others[normalise_unroll];
#pragma unroll
        for (int u = 0; u < normalise_unroll; ++u) {
          if (u >= count) break;
          packs[u] = load_pack(x + at[u]);
          if constexpr (residual != Residual::none) others[u] = load_pack(other + at[u]);
        }
#pragma unroll
        for (int u = 0; u < normalise_unroll; ++u) {
          if (u >= count) break;
          unsigned bits = 0;
          Channels<T> values = to_floats(packs[u]), added_values;
          if constexpr (residual != Residual::none) added_values = to_floats(others[u]);
#pragma unroll
          for (int i = 0; i < width; ++i) {
            float value = coefficients.apply(i, values.values[i]);
            if constexpr (residual != Residual::none) {
              const float added = added_values.values[i];
              value += residual == Residual::tensor ? added : other_coefficients.apply(i, added);
            }
            bits |= value > 0 ? 1u << i : 0u;
            // Not fmaxf(), which would hide a NaN.
            values.values[i] = value < floor ? floor : value;
          }
          store_pack(y + at[u], from_floats<T>(values));
          if (mask != nullptr) mask[at[u] / width] = static_cast<uint8_t>(bits);
        }
      });
}

// The same, of which only the mean over the pixels of each image is kept. A block takes an image's
// slice of channels.
template <class T>
__global__ void __launch_bounds__(sweep_threads)
    normalise_mean_kernel(const T* x, NormInput norm, const T* other, uint8_t* mask, T* y,
                          int channels, int pixels, Count count, int lanes) {
  constexpr int width = pack_width<T>;
  const int rows_at_once = sweep_threads / lanes;
  const int row = static_cast<int>(threadIdx.x) / lanes;
  const int channel = (blockIdx.y * lanes + static_cast<int>(threadIdx.x) % lanes) * width;
  const bool active = row < rows_at_once && channel < channels;
  const int64_t image = blockIdx.x;
  Channels<T> sums = {};
  if (active) {
    const bool store = image == 0 && row == 0;
    const NormCoefficients<T> coefficients(norm, count, channel, store);
    for (int first = row; first < pixels; first += rows_at_once * normalise_unroll) {
      Pack<T> packs[normalise_unroll], others[normalise_unroll];
#pragma unroll
      for (int u = 0; u < normalise_unroll; ++u) {
        const int pixel = first + u * rows_at_once;
        if (pixel >= pixels) break;
        const int64_t at = (image * pixels + pixel) * channels + channel;
        packs[u] = load_pack(x + at);
        others[u] = load_pack(other + at);
      }
#pragma unroll
      for (int u = 0; u < normalise_unroll; ++u) {
        const int pixel = first + u * rows_at_once;
        if (pixel >= pixels) break;
        unsigned bits = 0;
        const Channels<T> values = to_floats(packs[u]), added_values = to_floats(others[u]);
#pragma unroll
        for (int i = 0; i < width; ++i) {
          const float value = coefficients.apply(i, values.values[i]) + added_values.values[i];
          bits |= value > 0 ? 1u << i : 0u;
          sums.values[i] += value < 0 ? 0.0f : value;  // a NaN stays
        }
        const int64_t at = (image * pixels + pixel) * channels + channel;
        if (mask != nullptr) mask[at / width] = static_cast<uint8_t>(bits);
      }
    }
  }
  __shared__ Channels<T> shared[sweep_threads];
  shared[threadIdx.x] = sums;
  __syncthreads();
  if (!active || row > 0) return;
  for (int other_row = 1; other_row < rows_at_once; ++other_row) {
    const Channels<T>& more = shared[other_row * lanes + threadIdx.x];
#pragma unroll
    for (int i = 0; i < width; ++i) sums.values[i] += more.values[i];
  }
#pragma unroll
  for (int i = 0; i < width; ++i) sums.values[i] /= static_cast<float>(pixels);
  store_pack(y + image * channels + channel, from_floats<T>(sums));
}

}  // namespace

int64_t ReductionScratch::partial_sums_bytes(int multiprocessors) {
  // Slices times chunks is at most the number of blocks, but for one chunk each of many slices.
  const int64_t blocks = max(multiprocessors * most_blocks_per_multiprocessor, most_slices);
  return blocks * most_sums * slice_channels * static_cast<int64_t>(sizeof(float));
}

int64_t ReductionScratch::arrivals_bytes() { return most_slices * sizeof(unsigned); }

void launch_batch_statistics(Precision precision, const void* x, Extent extent,
                             const BatchNormState& state, const ReductionScratch& scratch,
                             cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const dim3 grid = reduction_grid(extent, slice_rows<T> * statistics_unroll,
                                     scratch.multiprocessors, statistics_blocks);
    enqueue({grid, reduction_threads, stream}, statistics_kernel<T>, x, extent, Count(extent.rows),
            state, scratch);
  });
}

void launch_normalise(Precision precision, const NormaliseOperands& operands, Extent extent,
                      int multiprocessors, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    if (operands.mean_of_pixels > 0) {
      const int packs = extent.channels / pack_width<T>, lanes = min(packs, 32);
      const dim3 grid(static_cast<unsigned>(extent.rows / operands.mean_of_pixels),
                      (packs + lanes - 1) / lanes);
      return enqueue({grid, sweep_threads, stream}, normalise_mean_kernel<T>, operands.x,
                     operands.norm, operands.residual, operands.mask, operands.y, extent.channels,
                     operands.mean_of_pixels, Count(extent.rows), lanes);
    }
    const SweepShape shape(extent, pack_width<T>, normalise_unroll, multiprocessors);
    const NormInput other =
        operands.residual_norm != nullptr ? *operands.residual_norm : NormInput{};
    const auto kernel = operands.residual == nullptr ? normalise_kernel<T, Residual::none>
                        : operands.residual_norm == nullptr
                            ? normalise_kernel<T, Residual::tensor>
                            : normalise_kernel<T, Residual::normalised>;
    enqueue({shape.grid(), sweep_threads, stream}, kernel, operands.x, operands.norm,
            operands.residual, other, operands.relu, operands.mask, operands.y, extent,
            Count(extent.rows), shape);
  });
}

}  // namespace nearmetal::cuda
