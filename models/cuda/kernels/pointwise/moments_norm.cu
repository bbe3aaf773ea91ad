#include "models/cuda/kernels/channel_reduction.h"
#include "models/cuda/kernels/pointwise/moments_inputs.h"
#include "models/cuda/kernels/pointwise/second_moments.h"
#include "models/cuda/kernels/warp.h"

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

}  // namespace

void launch_moments_statistics(Precision precision, const MomentsNormOperands& operands,
                               const MomentsShape& shape, cudaStream_t stream) {
  with_inputs(precision, shape.inputs, [&]<class T, int inputs>() {
    launch_kernel({blocks_for(shape.outputs, moments_rows), moments_threads, stream},
                  moments_statistics_kernel<T, inputs>, operands, Count(shape.rows));
  });
}

void launch_moments_gradient(Precision precision, const MomentsGradientOperands& operands,
                             const MomentsShape& shape, cudaStream_t stream) {
  const dim3 matrix_grid(shape.inputs / matrix_side, shape.inputs / matrix_side);
  with_inputs(precision, shape.inputs, [&]<class T, int inputs>() {
    launch_kernel({blocks_for(shape.outputs, moments_rows), moments_threads, stream},
                  moments_weight_gradient_kernel<T, inputs>, operands, Count(shape.rows));
    launch_kernel({matrix_grid, matrix_threads, stream}, moments_matrix_kernel<T>, operands, shape);
  });
}

}  // namespace nearmetal::cuda
