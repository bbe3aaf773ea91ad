// Finds in a graph what one pair of sweeps computes: batch norm with ReLU, residual add or pooling.
#pragma once

#include <string>

#include "models/graph.h"

namespace nearmetal::cuda {

/// Nodes by index; -1 where a pattern has no such node.
struct NormPattern {
  int conv = -1;    // whose output is normalised
  int norm = -1;    // the batch norm
  int output = -1;  // the ReLU whose value the sweep writes
  int pool = -1;    // max pooling, if its value is written instead
  // What is added before the ReLU: a stored tensor, or the normalised output of another
  // convolution.
  int residual = -1;
  int residual_conv = -1;
  int residual_norm = -1;

  bool adds() const { return residual >= 0 || residual_norm >= 0; }
};

class PatternMatcher {
 public:
  explicit PatternMatcher(const Graph& graph) : graph_(graph) {}

  /// conv, norm, ReLU or conv, norm, add, ReLU, by its last node. These throw std::invalid_argument
  /// for anything else.
  NormPattern ending_in_relu(int relu) const;
  /// conv, norm, ReLU, 3x3 max pooling of stride 2.
  NormPattern ending_in_pool(int pool) const;
  [[noreturn]] void unsupported(int node) const;

  /// "layer1.0.bn3 + layer1.0.relu"
  std::string name(const NormPattern& pattern) const;

 private:
  bool is_stored(int node) const;
  bool is_norm_of_convolution(int node) const;

  const Graph& graph_;
};

}  // namespace nearmetal::cuda
