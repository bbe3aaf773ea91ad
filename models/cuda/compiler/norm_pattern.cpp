#include "models/cuda/compiler/norm_pattern.h"

#include <stdexcept>

#include "models/cuda/kernels/norm_pool.h"

namespace nearmetal::cuda {

// Is this node's value written to memory, so that a sweep can add it?
bool PatternMatcher::is_stored(int node) const {
  return graph_.is(node, OpKind::max_pool) ||
         (graph_.is(node, OpKind::relu) &&
          !graph_.is(graph_.sole_consumer(node), OpKind::max_pool));
}

bool PatternMatcher::is_norm_of_convolution(int node) const {
  return graph_.is(node, OpKind::batch_norm) && graph_.consumers(node).size() == 1 &&
         graph_.is(graph_.node(node).inputs[0], OpKind::conv);
}

NormPattern PatternMatcher::ending_in_relu(int relu) const {
  NormPattern pattern;
  pattern.output = relu;
  pattern.norm = graph_.node(relu).inputs[0];
  if (graph_.is(pattern.norm, OpKind::add) && graph_.sole_consumer(pattern.norm) == relu) {
    const std::vector<int>& added = graph_.node(pattern.norm).inputs;
    const bool left = is_norm_of_convolution(added[0]);
    pattern.norm = left ? added[0] : added[1];
    const int other = left ? added[1] : added[0];
    if (is_norm_of_convolution(other)) {
      pattern.residual_norm = other;
      pattern.residual_conv = graph_.node(other).inputs[0];
    } else if (is_stored(other)) {
      pattern.residual = other;
    } else {
      unsupported(relu);
    }
  }
  if (!is_norm_of_convolution(pattern.norm)) unsupported(relu);
  pattern.conv = graph_.node(pattern.norm).inputs[0];
  return pattern;
}

NormPattern PatternMatcher::ending_in_pool(int pool) const {
  const int relu = graph_.node(pool).inputs[0];
  if (!graph_.is(relu, OpKind::relu) || graph_.sole_consumer(relu) != pool) unsupported(pool);
  if (graph_.node(pool).window != stem_pool_window) unsupported(pool);
  NormPattern pattern = ending_in_relu(relu);
  if (pattern.adds()) unsupported(pool);
  pattern.pool = pool;
  return pattern;
}

void PatternMatcher::unsupported(int node) const {
  throw std::invalid_argument("the CUDA backend has no kernel for the pattern around " +
                              graph_.node(node).name);
}

std::string PatternMatcher::name(const NormPattern& pattern) const {
  std::string name = graph_.node(pattern.norm).name;
  if (pattern.residual_norm >= 0) name += " + " + graph_.node(pattern.residual_norm).name;
  name += " + " + graph_.node(pattern.output).name;
  if (pattern.pool >= 0) name += " + " + graph_.node(pattern.pool).name;
  return name;
}

}  // namespace nearmetal::cuda
