// What lies in a value of a pass.
#pragma once

namespace nearmetal::cuda {

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
