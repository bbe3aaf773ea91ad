#include "models/cuda/kernels/channel_reduction.h"
#include "models/cuda/kernels/pointwise/product.h"
#include "models/cuda/kernels/pointwise/second_moments.h"

namespace nearmetal::cuda {
namespace {

constexpr int moments_threads = 256;
constexpr int moments_rows = 8;  // outputs of a block, one for each warp

// A block for 8 outputs. All loads of a loop are on their way at once, as latency is all that so
// few values cost.
template <class T, int inputs>
__global__ void __launch_bounds__(moments_threads)
    moments_statistics_kernel(MomentsNormOperands operands, Count count) {
  constexpr int groups = moments_threads / inputs, length = inputs / groups;
  __shared__ __align__(16) float weights[inputs][moments_rows];
  __shared__ float parts[groups][moments_rows][inputs];
  const int64_t first = int64_t{blockIdx.x} * moments_rows;
  const auto* source = static_cast<const T*>(operands.weights) + first * inputs;
#pragma unroll
  for (int i = 0; i < moments_rows * inputs / moments_threads; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * moments_threads;
    weights[at % inputs][at / inputs] = to_float(source[at]);
  }
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x) % inputs;
  const int group = static_cast<int>(threadIdx.x) / inputs;
  float sums[moments_rows] = {};
#pragma unroll 32
  for (int j = group * length; j < (group + 1) * length; ++j) {
    const float central = operands.moments.central[j * inputs + column];
#pragma unroll
    for (int row = 0; row < moments_rows; ++row) {
      sums[row] = fmaf(weights[j][row], central, sums[row]);
    }
  }
#pragma unroll
  for (int row = 0; row < moments_rows; ++row) parts[group][row][column] = sums[row];
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int output = static_cast<int>(first) + warp;
  float mean = 0, square = 0;
#pragma unroll
  for (int i = lane; i < inputs; i += 32) {
    float product = 0;
    for (int g = 0; g < groups; ++g) product += parts[g][warp][i];
    operands.product[int64_t{output} * inputs + i] = product;
    mean = fmaf(weights[i][warp], operands.moments.mean[i], mean);
    square = fmaf(weights[i][warp], product, square);
  }
  mean = warp_sum(mean);
  square = warp_sum(square);
  const ChannelStatistics statistics(operands.state.scale[output], operands.state.bias[output],
                                     mean, square * count.inverse);
  if (lane == 0) statistics.store(operands.state, output, count);
  auto* scaled = static_cast<T*>(operands.scaled_weights) + int64_t{output} * inputs;
#pragma unroll
  for (int i = lane; i < inputs; i += 32) {
    scaled[i] = from_float<T>(statistics.multiplier * weights[i][warp]);
  }
}

// A warp for an output.
template <class T, int inputs>
__global__ void __launch_bounds__(moments_threads)
    moments_weight_gradient_kernel(MomentsGradientOperands operands, Count count) {
  constexpr int values = inputs / 32;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int output = static_cast<int>(blockIdx.x) * moments_rows + warp;
  if (output == 0 && lane == 0) *operands.largest = 0;
  const int64_t row = int64_t{output} * inputs;
  const auto* weights = static_cast<const T*>(operands.weights) + row;
  auto* gradient = static_cast<T*>(operands.weight_gradient) + row;
  const float sum = operands.state.bias_gradient[output];
  float centred[values], product[values], centred_sum = 0;
#pragma unroll
  for (int v = 0; v < values; ++v) {
    const int i = lane + v * 32;
    product[v] = operands.product[row + i];
    centred[v] = fmaf(-sum, operands.mean[i], to_float(gradient[i]));
    centred_sum = fmaf(to_float(weights[i]), centred[v], centred_sum);
  }
  centred_sum = warp_sum(centred_sum);
  __shared__ float factors[moments_rows][2];
  if (lane == 0) {
    finish_backward(operands.state, output, sum, centred_sum, count);
    factors[warp][0] = operands.state.a[output];
    factors[warp][1] = operands.state.b[output];
  }
  __syncwarp();
  const float a = factors[warp][0], b = factors[warp][1];
#pragma unroll
  for (int v = 0; v < values; ++v) {
    gradient[lane + v * 32] = from_float<T>(fmaf(a, centred[v], b * product[v]));
  }
}

constexpr int matrix_side = 32, matrix_groups = 4;
constexpr int matrix_threads = matrix_groups * 256;

// A block for 32 x 32 values of M; four groups of threads share the outputs.
template <class T>
__global__ void __launch_bounds__(matrix_threads)
    moments_matrix_kernel(MomentsGradientOperands operands, MomentsShape shape) {
  // Rows r, r + 8, r + 16 and r + 24 of M side by side, as a thread takes them.
  __shared__ __align__(16) float left[matrix_groups][matrix_side][matrix_side];
  __shared__ float right[matrix_groups][matrix_side][matrix_side + 1];
  const int group = static_cast<int>(threadIdx.x) / 256;
  const int column = static_cast<int>(threadIdx.x) % 32,
            part = static_cast<int>(threadIdx.x) % 256 / 32;
  const int first_row = static_cast<int>(blockIdx.y) * matrix_side;
  const int first_column = static_cast<int>(blockIdx.x) * matrix_side;
  const auto* weights = static_cast<const T*>(operands.weights);
  float sums[4] = {}, vector = 0;
  const bool with_vector = blockIdx.y == 0;
  for (int first = group * matrix_side; first < shape.outputs;
       first += matrix_groups * matrix_side) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int o = part + q * 8;
      const int64_t row = int64_t{first + o} * shape.inputs;
      const float value = to_float(weights[row + first_column + column]);
      right[group][o][column] = value;
      left[group][o][column % 8 * 4 + column / 8] =
          operands.state.b[first + o] * to_float(weights[row + first_row + column]);
      if (with_vector) vector = fmaf(operands.state.c[first + o], value, vector);
    }
    __syncthreads();  // outputs are a multiple of all groups' steps
#pragma unroll 8
    for (int o = 0; o < matrix_side; ++o) {
      const float value = right[group][o][column];
      const auto rows = *reinterpret_cast<const float4*>(&left[group][o][part * 4]);
      sums[0] = fmaf(rows.x, value, sums[0]);
      sums[1] = fmaf(rows.y, value, sums[1]);
      sums[2] = fmaf(rows.z, value, sums[2]);
      sums[3] = fmaf(rows.w, value, sums[3]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int q = 0; q < 4; ++q) left[group][part + q * 8][column] = sums[q];
  right[group][part][column] = vector;
  __syncthreads();
  if (group > 0) return;
  float largest = 0;
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    const int row = part + q * 8;
    float total = 0;
    for (int g = 0; g < matrix_groups; ++g) total += left[g][row][column];
    operands.matrix[(first_row + row) * shape.inputs + first_column + column] = total;
    largest = fmaxf(largest, fabsf(total));
  }
  if (with_vector && part == 0) {
    float total = 0;
    for (int g = 0; g < matrix_groups; ++g) {
      for (int p = 0; p < 8; ++p) total += right[g][p][column];
    }
    operands.vector[first_column + column] = total;
  }
  largest = warp_max(largest);
  if (column == 0) atomicMax(operands.largest, __float_as_uint(largest));
}

template <int channels>
constexpr int sums_shared_bytes() {
  using Tiles = ProductTiling<channels, channels>;
  return panel_alignment + Tiles::weights_bytes + 2 * Tiles::tile_bytes + Tiles::third_bytes +
         channels * 6 * static_cast<int>(sizeof(float));
}

constexpr int finish_channels = partial_sums_values / 2;

#ifdef NM_HAS_WGMMA

// Partial sums lie so that a block of sum_of_blocks() gets both sums of 16 channels.
__device__ constexpr int sum_place(int channel, int sum) {
  return channel / finish_channels * partial_sums_values + sum * finish_channels +
         channel % finish_channels;
}

// One channel's.
struct SumsCoefficients {
  float multiplier, shift, mean, summand;
};
template <int channels>
struct SumsTables {
  // Channel i of 8 of all packs in a row, so that neighbouring lanes meet no bank conflicts.
  SumsCoefficients of_results[8][channels / 8];
  float2 multiplier_and_shift[channels];
};

// z from x as the forward pass formed it: each fragment has two neighbours of two rows, and those 8
// channels further.
template <class T>
__device__ void form(RowFragments& fragments, const float2* multiplier_and_shift) {
  const int first = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const auto norm =
          *reinterpret_cast<const float4*>(multiplier_and_shift + k * 16 + side * 8 + first);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t& two = fragments[k][side * 2 + half];
        const float2 x = two_floats<T>(two);
        two = two_rectified<T>(fmaf(x.x, norm.x, norm.y), fmaf(x.y, norm.z, norm.w));
      }
    }
  }
}

#endif

// Forms dz = mask * (dz + z M + k), and sums it and dz * (x - mean) over this block's tiles.
template <class T, int channels>
__global__ void __launch_bounds__(product_threads, product_blocks_at_once)
    moments_sums_kernel(MomentsSumsOperands operands, int64_t rows, float* partial_sums) {
#ifdef NM_HAS_WGMMA
  using Tiles = ProductTiling<channels, channels>;
  extern __shared__ unsigned char unaligned[];
  unsigned char* matrix = aligned_for_panels(unaligned);
  unsigned char* x_tiles = matrix + Tiles::weights_bytes;
  unsigned char* third = x_tiles + 2 * Tiles::tile_bytes;
  auto& tables = *reinterpret_cast<SumsTables<channels>*>(third + Tiles::third_bytes);
  const auto x_of = [&](int64_t tile) {
    return TileRows<const T>(static_cast<const T*>(operands.x), channels, rows, tile, Tiles::rows);
  };
  const auto dz_of = [&](int64_t tile) {
    return TileRows<T>(static_cast<T*>(operands.dz), channels, rows, tile, Tiles::rows);
  };
  const ThirdOperand<T, channels, channels> incoming(third);
  copy_rows<T, channels, channels>(x_tiles, x_of(blockIdx.x));
  incoming.template copy<channels>(dz_of(blockIdx.x), 0);

  // As M may be below what 16 bits hold, it is scaled by a power of two. M is symmetric.
  const float largest = __uint_as_float(*operands.largest);
  const bool scales = largest > 0 && largest < INFINITY;
  const int exponent = scales ? max(ilogbf(largest), -126) : 0;  // 2^126 is finite
  const float down = ldexpf(1.0f, -exponent), up = ldexpf(1.0f, exponent);
#pragma unroll 4
  for (int at = static_cast<int>(threadIdx.x); at < channels * channels / 8;
       at += product_threads) {
    const int output = at / (channels / 8), chunk = at % (channels / 8);
    auto values = Channels<T>::load(operands.matrix + at * 8);
#pragma unroll
    for (float& value : values.values) value *= down;
    *reinterpret_cast<Pack<T>*>(matrix + in_panels(channels, place_of_output(output), chunk)) =
        from_floats<T>(values);
  }
  for (int at = static_cast<int>(threadIdx.x); at < channels; at += product_threads) {
    const BatchNormState& state = operands.state;
    const float2 norm = {state.multiplier[at], state.shift[at]};
    tables.of_results[at % 8][at / 8] =
        SumsCoefficients{norm.x, norm.y, state.mean[at], operands.vector[at]};
    tables.multiplier_and_shift[at] = norm;
  }
  fence_async_proxy();
  __syncthreads();

  static_assert(Tiles::parts == 1);
  const WarpPlace<channels, channels> warp;
  const ResultPlace place;
  float sums[2][2][8] = {};
  const int64_t count = (rows + Tiles::rows - 1) / Tiles::rows;
  int stage = 0;
  for (int64_t tile = blockIdx.x; tile < count; tile += gridDim.x, stage = 1 - stage) {
    const int64_t next = tile + gridDim.x;
    const int row = warp.row + place.row;
    const TileRows<T> dz = dz_of(tile);
    const unsigned char* x_tile = x_tiles + stage * Tiles::tile_bytes;
    cp_async_wait_group<1>();  // all but the incoming gradient's
    warp.meet();               // and nobody reads the other stage any more
    copy_rows<T, channels, channels>(x_tiles + (1 - stage) * Tiles::tile_bytes, x_of(next));
    float products[32];
    multiply_part<T, channels, channels>(
        products, x_tile, matrix, 0, [&](RowFragments& fragments, int panel) {
          form<T>(fragments, tables.multiplier_and_shift + panel * 64);
        });
    cp_async_wait_group<1>();  // all but the next x
    __syncwarp();
    uint4 packs[2][2];  // of a piece and half
#pragma unroll
    for (int piece = 0; piece < 2; ++piece) {
      const int pack = (warp.column + piece * 32 + place.column) / 8;
      Channels<T> values[2] = {incoming.get(0, piece, 0), incoming.get(0, piece, 1)}, at_x[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        at_x[half] = floats_of<T>(*reinterpret_cast<const uint4*>(
            x_tile + in_panels(Tiles::rows, warp.row + place.row + half * 8, pack)));
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const SumsCoefficients at = tables.of_results[i][pack];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float x_value = at_x[half].values[i];
          const bool passes =
              row + half * 8 < dz.count && fmaf(x_value, at.multiplier, at.shift) > 0;
          const float term = fmaf(products[ResultPlace::index(piece, half, i)], up, at.summand);
          const float value = passes ? values[half].values[i] + term : 0.0f;
          sums[piece][0][i] += value;
          sums[piece][1][i] = fmaf(value, x_value - at.mean, sums[piece][1][i]);
          values[half].values[i] = value;
        }
      }
      packs[piece][0] = packed(values[0]);
      packs[piece][1] = packed(values[1]);
    }
    __syncwarp();  // all lanes have read
    incoming.template copy<channels>(dz_of(next), 0);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      store_results<channels>(dz, warp.column, row + half * 8, packs[0][half], packs[1][half]);
    }
  }
  cp_async_wait_group<0>();
  __syncthreads();

  // Lanes 4 apart have the same columns; then warps of a warpgroup, or of both.
  auto* shared_sums = reinterpret_cast<float*>(x_tiles);  // [warps][2 channels], in places
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int piece = 0; piece < 2; ++piece) {
#pragma unroll
    for (int sum = 0; sum < 2; ++sum) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float value = sums[piece][sum][i];
        for (int distance = 4; distance < 32; distance *= 2) {
          value += __shfl_xor_sync(0xffffffff, value, distance);
        }
        const int channel = warp.column + piece * 32 + place.column + i;
        if (lane < 4)
          shared_sums[threadIdx.x / 32 * 2 * channels + sum_place(channel, sum)] = value;
      }
    }
  }
  __syncthreads();
  for (int at = static_cast<int>(threadIdx.x); at < 2 * channels; at += product_threads) {
    const int channel = at / partial_sums_values * finish_channels + at % finish_channels;
    const int first = Tiles::shared_rows ? channel / Tiles::columns * 4 : 0;
    float total = 0;
    for (int w = first; w < first + (Tiles::shared_rows ? 4 : 8); ++w) {
      total += shared_sums[w * 2 * channels + at];
    }
    partial_sums[int64_t{blockIdx.x} * 2 * channels + at] = total;
  }
#else
  __trap();
#endif
}

// A block for 16 channels.
__global__ void __launch_bounds__(partial_sums_threads)
    finish_sums_kernel(const float* partial_sums, int blocks, int values, BatchNormState state,
                       Count count) {
  const int first = static_cast<int>(blockIdx.x) * partial_sums_values;
  const float sum = sum_of_blocks(partial_sums, blocks, values, first);
  if (threadIdx.x >= partial_sums_values) return;
  const float centred_sum = __shfl_down_sync(0xffffffff, sum, finish_channels);
  if (threadIdx.x >= finish_channels) return;
  const auto channel = static_cast<int>(blockIdx.x * finish_channels + threadIdx.x);
  finish_backward(state, channel, sum, centred_sum, count);
}

}  // namespace

void launch_moments_statistics(Precision precision, const MomentsNormOperands& operands,
                               const MomentsShape& shape, cudaStream_t stream) {
  with_inputs(precision, shape.inputs, [&]<class T, int inputs>() {
    enqueue({blocks_for(shape.outputs, moments_rows), moments_threads, stream},
            moments_statistics_kernel<T, inputs>, operands, Count(shape.rows));
  });
}

void launch_moments_gradient(Precision precision, const MomentsGradientOperands& operands,
                             const MomentsShape& shape, cudaStream_t stream) {
  const dim3 matrix_grid(shape.inputs / matrix_side, shape.inputs / matrix_side);
  with_inputs(precision, shape.inputs, [&]<class T, int inputs>() {
    enqueue({blocks_for(shape.outputs, moments_rows), moments_threads, stream},
            moments_weight_gradient_kernel<T, inputs>, operands, Count(shape.rows));
    enqueue({matrix_grid, matrix_threads, stream}, moments_matrix_kernel<T>, operands, shape);
  });
}

void launch_moments_sums(Precision precision, const MomentsSumsOperands& operands, int64_t rows,
                         int inputs, const ReductionScratch& scratch, cudaStream_t stream) {
  with_inputs(precision, inputs, [&]<class T, int channels>() {
    using Tiles = ProductTiling<channels, channels>;
    constexpr int bytes = sums_shared_bytes<channels>();
    static_assert(product_blocks_at_once * 2 * channels <=
                  most_blocks_per_multiprocessor * most_sums * slice_channels);
    const int64_t tiles = (rows + Tiles::rows - 1) / Tiles::rows;
    const int64_t at_once = int64_t{product_blocks_at_once} * scratch.multiprocessors;
    const auto blocks = static_cast<int>(min(tiles, at_once));
    enqueue({dim3(blocks), product_threads, stream, bytes}, moments_sums_kernel<T, channels>,
            operands, rows, scratch.partial_sums);
    enqueue({channels / finish_channels, partial_sums_threads, stream}, finish_sums_kernel,
            scratch.partial_sums, blocks, 2 * channels, operands.state, Count(rows));
  });
}

}  // namespace nearmetal::cuda
