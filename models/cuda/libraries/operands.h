// The plain types of convolutions, of attention and of what lies in values, which kernels that
// check them take, too.
#pragma once

#include <cstdint>

#include "models/shapes.h"

namespace nearmetal::cuda {

enum class ConvolutionOp {
  forward,
  forward_statistics,  // forward, and sum and sum of squares of the output per channel
  forward_bias,        // forward, plus a bias per channel
  forward_activation,  // forward, plus a bias per channel, and ReLU
  forward_residual,    // forward, plus a bias per channel and a residual, and ReLU
  backward_data,
  backward_weights,
};

constexpr bool adds_bias(ConvolutionOp op) {
  return op == ConvolutionOp::forward_bias || op == ConvolutionOp::forward_activation ||
         op == ConvolutionOp::forward_residual;
}

/// Images x [batch, input_height, input_width, input_channels], weights [output_channels, kernel,
/// kernel, input_channels], results y [batch, output_height, output_width, output_channels].
struct ConvolutionShape {
  int64_t batch = 1;
  int64_t input_channels = 1, input_height = 1, input_width = 1;
  int64_t output_channels = 1, output_height = 1, output_width = 1;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding_before = 0, padding_after = 0;

  int64_t input_elements() const { return batch * input_height * input_width * input_channels; }
  int64_t output_elements() const { return batch * output_height * output_width * output_channels; }
  int64_t weight_elements() const { return output_channels * kernel * kernel * input_channels; }
};

/// Device addresses of one execution; `sum` and `square_sum` (fp32) for forward_statistics only,
/// `bias` (of the type of x) where adds_bias(), one value per output channel; `residual`, shaped as
/// y, for forward_residual only.
struct ConvolutionOperands {
  void* x = nullptr;
  void* weights = nullptr;
  void* y = nullptr;
  void* sum = nullptr;
  void* square_sum = nullptr;
  const void* bias = nullptr;
  const void* residual = nullptr;
};

enum class AttentionOp { forward, backward };

/// Device addresses of one execution, of which forward takes those of AttentionForward alone, with
/// log_sums, and backward those of AttentionBackward.
struct AttentionOperands {
  const void* packed = nullptr;
  void* y = nullptr;
  float* log_sums = nullptr;
  const void* dy = nullptr;
  float* dots = nullptr;
  void* packed_gradient = nullptr;
  const int32_t* token_counts = nullptr;  // [batch], where masks_tokens()
};

/// What lies in a value, by which scratch memory is filled that a kernel is tried on.
enum class Content {
  numbers,       // activations or gradients, in the type of the step
  rectified,     // the output of a ReLU
  channel_sums,  // fp32: sums over the rows of a tensor, then of their squares, by channel
  mask,          // a bit for each element: of a ReLU
  winners,       // a byte for each element: the place in the window of a pooling
  other,
};

}  // namespace nearmetal::cuda
