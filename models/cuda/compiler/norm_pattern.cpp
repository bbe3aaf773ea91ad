#include "models/cuda/compiler/norm_pattern.h"

#include <stdexcept>

#include "models/cuda/kernels/norm_pool.h"

namespace nearmetal::cuda {
namespace {

// Is this node's value written to memory, so that a sweep can add it?
bool is_stored(const Graph& graph, int node) {
  return graph.is(node, OpKind::max_pool) ||
         (graph.is(node, OpKind::relu) && !graph.is(graph.sole_consumer(node), OpKind::max_pool));
}

bool is_norm_of_convolution(const Graph& graph, int node) {
  return graph.is(node, OpKind::batch_norm) && graph.consumers(node).size() == 1 &&
         graph.is(graph.node(node).inputs[0], OpKind::conv);
}

}  // namespace

NormPattern ending_in_relu(const Graph& graph, int relu) {
  NormPattern pattern;
  pattern.output = relu;
  pattern.norm = graph.node(relu).inputs[0];
  if (graph.is(pattern.norm, OpKind::add) && graph.sole_consumer(pattern.norm) == relu) {
    const std::vector<int>& added = graph.node(pattern.norm).inputs;
    const bool left = is_norm_of_convolution(graph, added[0]);
    pattern.norm = left ? added[0] : added[1];
    const int other = left ? added[1] : added[0];
    if (is_norm_of_convolution(graph, other)) {
      pattern.residual_norm = other;
      pattern.residual_conv = graph.node(other).inputs[0];
    } else if (is_stored(graph, other)) {
      pattern.residual = other;
    } else {
      unsupported(graph, relu);
    }
  }
  if (!is_norm_of_convolution(graph, pattern.norm)) unsupported(graph, relu);
  pattern.conv = graph.node(pattern.norm).inputs[0];
  return pattern;
}

NormPattern ending_in_pool(const Graph& graph, int pool) {
  const int relu = graph.node(pool).inputs[0];
  if (!graph.is(relu, OpKind::relu) || graph.sole_consumer(relu) != pool) unsupported(graph, pool);
  if (graph.node(pool).window != stem_pool_window) unsupported(graph, pool);
  NormPattern pattern = ending_in_relu(graph, relu);
  if (pattern.adds()) unsupported(graph, pool);
  pattern.pool = pool;
  return pattern;
}

void unsupported(const Graph& graph, int node) {
  throw std::invalid_argument("the CUDA backend has no kernel for the pattern around " +
                              graph.node(node).name);
}

std::string name_of(const Graph& graph, const NormPattern& pattern) {
  std::string name = graph.node(pattern.norm).name;
  if (pattern.residual_norm >= 0) name += " + " + graph.node(pattern.residual_norm).name;
  name += " + " + graph.node(pattern.output).name;
  if (pattern.pool >= 0) name += " + " + graph.node(pattern.pool).name;
  return name;
}

}  // namespace nearmetal::cuda
