// The end of the network but for its matrix products: global average pooling, bias, softmax
// cross-entropy of images or of spans of sequences, and the gradient of the bias.
//
// Small beside everything else: pooling reads (backward: writes) the last tensor once, whose copy
// is its floor; the others work on images x classes, or on tokens x 2.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "models/training_options.h"

namespace nearmetal::cuda {

/// y [images, channels] = mean over `pixels` of x [images, pixels, channels].
void launch_average_pool(Precision precision, const void* x, void* y, int64_t images, int pixels,
                         int channels, cudaStream_t stream);
/// dx [images, pixels, channels] = dy [images, channels] / pixels.
void launch_average_pool_backward(Precision precision, const void* dy, void* dx, int64_t images,
                                  int pixels, int channels, cudaStream_t stream);

/// Classifier outputs of a batch: rows of `row_elements` (classes, rounded up for alignment), one
/// for each image or token.
struct LogitsShape {
  int64_t rows = 0;
  int classes = 0;
  int row_elements = 0;
};
/// losses[row] = cross-entropy of softmax(logits + bias) with its label, fp32. `gradient`, if not
/// null, gets its derivative by the logits, times *loss_scale / rows, with zeros past the classes.
void launch_softmax_loss(Precision precision, const LogitsShape& shape, const float* logits,
                         const float* bias, const int32_t* labels, const float* loss_scale,
                         float* losses, void* gradient, cudaStream_t stream);
/// The same of spans: a row is a token, which has a logit as the start and one as the end.
/// losses[sequence] = mean of the two cross-entropies over its `tokens` with its labels [sequences,
/// 2]; the derivative is times *loss_scale / sequences.
void launch_span_loss(Precision precision, const LogitsShape& shape, int tokens,
                      const float* logits, const float* bias, const int32_t* labels,
                      const float* loss_scale, float* losses, void* gradient, cudaStream_t stream);
/// bias_gradient[class] = sum over rows of gradient.
void launch_bias_gradient(Precision precision, const LogitsShape& shape, const void* gradient,
                          float* bias_gradient, cudaStream_t stream);

}  // namespace nearmetal::cuda
