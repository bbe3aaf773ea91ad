// Small graphs for tests.
#pragma once

#include <cstdint>

#include "models/graph.h"

namespace nearmetal {

/// Image, 3x3 convolution to 8 channels, then the convolution of this window to `channels`, then
/// the classifier; batch norm and ReLU behind both.
Graph conv_graph(Window window, Shape image, int64_t channels = 16, int64_t classes = 10);
/// As conv_graph, with the convolution of `window` reading the image.
Graph stem_graph(Window window, Shape image, bool pooled, int64_t channels = 8);
/// A small network with every operation: pooled stem and one block with an identity shortcut.
Graph small_graph(int64_t image_size = 32, int64_t classes = 10);
/// Stem and one bottleneck of stride 2 with a projection.
Graph bottleneck_graph(int64_t image_size, int64_t classes = 10);
/// Two stages of two bottlenecks each, of as many channels as the first two of ResNet-50 have; a
/// convolution of 1x1 behind them. The second stage has stride 2.
Graph wide_bottlenecks_graph(Shape image);
/// Stem, a block with an identity shortcut, and one of stride 2 with a projection, whose stride is
/// in its first convolution (1x1) or its second (3x3).
Graph two_block_graph(Shape image, bool stride_in_first_conv);

/// Operations in an order for which no backend has a kernel that does several at once.
Graph plain_graph(Shape image);
/// Two pairs of convolutions with bias and ReLU, pooling behind each, and two linear layers.
Graph small_vgg_graph(Shape image, bool with_norm);

/// A Vision Transformer of two layers whose tokens have 15 features, in 3 heads; the image must
/// consist of patches of 3 x 3. Here and below, features are rounded up to what `multiple` divides
/// for backends that take no others.
Graph small_vit_graph(Shape image, int64_t classes = 10, int64_t multiple = 1);
/// BERT with two layers whose tokens have 15 features, in 3 heads, and 13 words.
Graph small_bert_graph(int64_t tokens, int64_t positions = 11, int64_t multiple = 1);
/// A sequence with one label, and an image with a span: what no network has.
Graph classified_sequence_graph(int64_t tokens, int64_t multiple = 1);
Graph marked_image_graph(Shape image, int64_t multiple = 1);
/// Operations on tokens in an order that no network has, on pixels and more than one reader.
Graph plain_token_graph(Shape image, int64_t multiple = 1);
/// Tokens of so many features that several warps share one, and sums for channels wide rows.
Graph wide_token_graph(Shape image, int64_t multiple = 1);

}  // namespace nearmetal
