// The end of a step: conversion of gradients that travel, gradient norm, loss scale, the step's
// record, and SGD or AdamW over flat buffers.
//
// Bytes per parameter, whose copy is the floor: the norm reads its gradient (E, the size of an
// activation); SGD reads gradient, value and momentum, E + 8, and writes value, momentum and the
// copy for the next step, 8 + E, of which there is none in fp32; AdamW reads and writes 4 more. The
// sum over micro-batches reads and writes 4 more for each but the first, and their mean reads 4 and
// writes E.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "models/training_options.h"

namespace nearmetal::cuda {

/// The state that the device keeps from step to step.
struct StepState {
  uint64_t step;        // counts from 0; draws the labels
  float loss_scale;     // for the next backward pass
  float inverse_scale;  // 1 / the scale of the gradients that are there, and their ranks
  int32_t good_steps;   // since the loss scale last changed
  int32_t skip_update;
  float learning_rate;  // here, as arguments of kernels are fixed in a CUDA graph
  int64_t updates;      // without the skipped ones
  AdamwStep adamw;      // of the update that comes
  // By the device's clock; both 0 without an exchange of gradients.
  uint64_t backward_end_nanoseconds;
  uint64_t exchange_end_nanoseconds;
};

/// The part of a StepRecord that the device writes, into pinned host memory.
struct DeviceRecord {
  float loss;
  float gradient_norm;
  int32_t update_skipped;
  float exposed_communication_seconds;
};

/// All trained values behind one another, last layer first: first the matrices (convolutions and
/// classifier), whose gradients have the type of the activations, then the vectors (batch norm and
/// bias), whose gradients are fp32. Sizes in elements, multiples of 8.
struct FlatParameters {
  int64_t matrix_elements = 0;
  int64_t vector_elements = 0;
  float* values = nullptr;  // master: matrices, then vectors
  void* copies = nullptr;   // values in the type of the activations; null: that is fp32
  // Null where nothing is trained:
  float* momentum = nullptr;          // like values
  float* second_moments = nullptr;    // likewise; null with SGD
  void* matrix_gradients = nullptr;   // scaled by the loss scale
  float* vector_gradients = nullptr;  // likewise
  // Sum over the micro-batches before the last, like values; null where a step is one.
  float* sum_before = nullptr;

  /// A matrix or vector in the type of the activations, and the gradient of a matrix.
  void* operand(int64_t offset, int64_t element_size) const {
    if (copies == nullptr) return values + offset;
    return static_cast<char*>(copies) + offset * element_size;
  }
  void* gradient(int64_t offset, int64_t element_size) const {
    return static_cast<char*>(matrix_gradients) + offset * element_size;
  }
};

/// Ends the step: mean loss, unscaled gradient norm (if there are gradients), whether to skip the
/// update, the next loss scale; writes the record of this step into ring[step % ring_size].
struct FinishOperands {
  const float* losses = nullptr;
  int64_t images = 0;
  FlatParameters parameters;
  int ranks = 1;                   // whose gradients are summed
  double* partial_sums = nullptr;  // finish_blocks() values
  unsigned* arrivals = nullptr;    // one, 0 between launches
  StepState* state = nullptr;
  DeviceRecord* ring = nullptr;
  int ring_size = 1;
  bool dynamic_loss_scale = false;
  bool forward_only = false;
  // For a stage, squares of the gradient and mean loss, to be summed over all stages; else null.
  double* stage_sums = nullptr;
};
inline constexpr int finish_blocks = 264;
void launch_finish_step(Precision precision, const FinishOperands& operands, cudaStream_t stream);

/// Ends the step of a stage, once launch_finish_step() has left its `stage_sums` and they are those
/// of all stages.
void launch_finish_stages(const FinishOperands& operands, cudaStream_t stream);

/// Where marks of time go: host memory, `count` for each step of a ring.
struct MarkRing {
  const StepState* state = nullptr;
  uint64_t* marks = nullptr;
  int ring_size = 1;
  int count = 0;
};
/// Notes the device's clock, in nanoseconds, as the mark of this number of the step.
void launch_mark(const MarkRing& ring, int mark, cudaStream_t stream);

/// The gradient of one of several micro-batches, and the sum of those before it.
struct MicroBatchGradient {
  Precision type = Precision::fp32;  // of the gradient
  void* gradient = nullptr;
  float* sum_before = nullptr;
  int64_t elements = 0;  // a multiple of 4, at addresses of multiples of 16 bytes
};
/// first: sum = gradient; middle: sum += gradient; last: gradient = (sum + gradient) / count.
void launch_add_micro_batch(MicroBatch which, const MicroBatchGradient& operands, int64_t count,
                            cudaStream_t stream);

/// Notes when the backward pass is through and nothing but gradients of other ranks is awaited.
void launch_mark_backward_end(StepState* state, cudaStream_t stream);

/// SGD after launch_finish_step(), with the learning rate of `state`.
void launch_sgd(Precision precision, const FlatParameters& parameters, double momentum,
                double weight_decay, const StepState* state, cudaStream_t stream);

/// AdamW after launch_finish_step(), likewise; matrices decay, vectors do not.
void launch_adamw(Precision precision, const FlatParameters& parameters, double weight_decay,
                  const StepState* state, cudaStream_t stream);

/// Copies master values into their 16-bit copies, where there are any.
void launch_copy_values(Precision precision, const FlatParameters& parameters, cudaStream_t stream);

/// gradients[i] = 0 where mask[i] == 0: taps of a rearranged filter that are no parameters.
void launch_mask_gradient(Precision precision, void* gradients, const uint8_t* mask,
                          int64_t elements, cudaStream_t stream);

/// out[i] = in[i], each as `Precision` is stored; rounded to nearest even, infinity beyond what the
/// type holds. `elements` is a multiple of 4, addresses are multiples of 16 bytes. As many bytes as
/// both arrays have are the floor.
void launch_convert(Precision from, const void* in, Precision to, void* out, int64_t elements,
                    cudaStream_t stream);

}  // namespace nearmetal::cuda
