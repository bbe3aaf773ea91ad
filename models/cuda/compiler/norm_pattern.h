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

/// conv, norm, ReLU or conv, norm, add, ReLU, by its last node. These throw std::invalid_argument
/// for anything else.
NormPattern ending_in_relu(const Graph& graph, int relu);
/// conv, norm, ReLU, 3x3 max pooling of stride 2.
NormPattern ending_in_pool(const Graph& graph, int pool);
[[noreturn]] void unsupported(const Graph& graph, int node);

/// "layer1.0.bn3 + layer1.0.relu"
std::string name_of(const Graph& graph, const NormPattern& pattern);

}  // namespace nearmetal::cuda
