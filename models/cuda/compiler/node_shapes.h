// The shapes of a graph's nodes as kernels take them, for one batch.
#pragma once

#include <cstdint>

#include "models/cuda/kernels/batch_norm.h"
#include "models/cuda/kernels/head.h"
#include "models/cuda/kernels/norm_pool.h"
#include "models/cuda/kernels/pointwise/backward.h"
#include "models/cuda/kernels/pointwise/second_moments.h"
#include "models/cuda/kernels/stem.h"
#include "models/cuda/kernels/tokens.h"
#include "models/cuda/libraries/linear.h"
#include "models/graph.h"
#include "models/shapes.h"
#include "models/training_options.h"

namespace nearmetal::cuda {

inline constexpr int64_t float_bytes = sizeof(float);

struct NodeShapes {
  const Graph& graph;
  int64_t batch = 1;
  Precision precision = Precision::fp32;

  int64_t element_size() const { return element_bytes(precision); }
  int64_t bytes(int node) const {
    return batch * graph.node(node).shape.elements() * element_size();
  }
  double forward_flops(int node) const {
    return graph.forward_flops(graph.node(node)) * static_cast<double>(batch);
  }
  /// Whether the convolution reads the images.
  bool is_stem(int conv) const { return graph.is(graph.node(conv).inputs[0], OpKind::input); }

  Extent extent(int node) const;
  ImageSize image(int node) const;
  PoolShape pool(int pool) const;
  StemShape stem(int conv) const;
  PointwiseShape pointwise(int conv) const;
  MomentsShape moments(int conv) const;
  /// A row for each sample, or for each token of a span.
  LogitsShape logits(int linear) const;
  LinearShape linear(int linear) const;
  TokenExtent tokens(int node) const;
  AttentionExtent attention(int node) const;
};

}  // namespace nearmetal::cuda
