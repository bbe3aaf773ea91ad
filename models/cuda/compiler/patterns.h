// Nodes of a graph as kernels take them: their shapes, and patterns, which are nodes that one
// kernel computes together. A node that no pattern takes has a kernel of its own.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/cuda/kernels/batch_norm.h"
#include "models/cuda/kernels/head.h"
#include "models/cuda/kernels/norm_pool.h"
#include "models/cuda/kernels/pointwise/backward.h"
#include "models/cuda/kernels/pointwise/second_moments.h"
#include "models/cuda/kernels/stem.h"
#include "models/cuda/kernels/tokens.h"
#include "models/cuda/libraries/layers.h"
#include "models/cuda/libraries/linear.h"
#include "models/graph.h"
#include "models/program.h"
#include "models/shapes.h"
#include "models/training_options.h"

namespace nearmetal::cuda {

inline constexpr int64_t float_bytes = sizeof(float);

/// For one batch.
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

/// Batch norm of a convolution with what follows it: conv, norm, (add,) ReLU (, 3x3 max pooling of
/// stride 2). Nodes by index; -1 where a pattern has no such node.
struct NormPattern {
  int conv = -1;    // whose output is normalised
  int norm = -1;    // the batch norm
  int output = -1;  // the ReLU whose value the sweep writes
  int pool = -1;    // max pooling, if its value is written instead
  // The residual that is added before the ReLU: a stored tensor, or the normalised output of
  // another convolution.
  int residual = -1;
  int residual_conv = -1;
  int residual_norm = -1;

  bool adds() const { return residual >= 0 || residual_norm >= 0; }
};

/// A bias, a residual, a ReLU, max pooling, or some of them in this order. A residual only in a
/// graph without a loss, and with the bias of a convolution. Or GELU, alone or behind a bias.
struct ActivationPattern {
  int input = -1;  // the node before, or the convolution or linear layer whose bias is added
  int bias = -1;   // that parameter
  int residual = -1;
  int relu = -1;
  int gelu = -1;
  int pool = -1;

  int output() const { return pool >= 0 ? pool : gelu >= 0 ? gelu : relu >= 0 ? relu : input; }
};

class Patterns {
 public:
  /// Kernels::cudnn: those that cuDNN's kernels take in this precision.
  Patterns(const Graph& graph, Kernels kernels, Precision precision);

  /// The pattern that ends in this node; null if there is none.
  const NormPattern* norm(int output) const { return find(norms_, output); }
  const ActivationPattern* activation(int output) const { return find(activations_, output); }
  /// Whether a pattern computes this node that ends in a later one.
  bool is_inside(int node) const { return inside_[node]; }

 private:
  template <class Pattern>
  static const Pattern* find(const std::map<int, Pattern>& patterns, int output) {
    const auto found = patterns.find(output);
    return found == patterns.end() ? nullptr : &found->second;
  }
  void see(int node);
  void see_relu(int relu);
  void see_gelu(int gelu);
  void see_pool(int pool);
  std::optional<NormPattern> norm_before(int relu) const;
  bool is_norm_of_convolution(int node) const;
  // The activation that ends in this node, to be part of a longer one if this alone reads it.
  ActivationPattern activation_before(int node);
  // The one that begins with the bias of a convolution and ends in this sum; none where there is no
  // such convolution, or a backward pass.
  std::optional<ActivationPattern> residual_before(int add);

  const Graph& graph_;
  bool ours_;         // else cuDNN's
  bool fuses_norms_;  // with what follows; cuDNN has kernels for that in fp16 alone
  std::map<int, NormPattern> norms_;
  std::map<int, ActivationPattern> activations_;
  std::vector<bool> inside_;
};

/// What cuDNN computes together with this batch norm.
cudnnBatchNormOps_t operations_of(const NormPattern& norm);

/// "layer1.0.bn3 + layer1.0.relu"
std::string name_of(const Graph& graph, const NormPattern& pattern);
std::string name_of(const Graph& graph, const ActivationPattern& pattern);

}  // namespace nearmetal::cuda
