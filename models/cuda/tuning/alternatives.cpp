#include "models/cuda/tuning/alternatives.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "models/cuda/compiler/node_shapes.h"
#include "models/cuda/kernels/pointwise/backward.h"
#include "models/cuda/kernels/pointwise/second_moments.h"
#include "models/cuda/kernels/stem.h"

namespace nearmetal::cuda {
namespace {

PointwiseShape pointwise_shape(const ConvolutionShape& shape) {
  return {shape.output_elements() / shape.output_channels, static_cast<int>(shape.output_channels),
          static_cast<int>(shape.input_channels)};
}

bool is_pointwise(const ConvolutionShape& shape) { return shape.kernel == 1 && shape.stride == 1; }

// The first convolution of a ResNet in the form that our kernels read.
bool is_stem(const ConvolutionShape& shape) {
  return shape.kernel == 7 && shape.stride == 2 && shape.padding_before == 3 &&
         shape.padding_after == 3 && shape.input_channels == stem_stored_channels &&
         shape.output_channels == stem_channels && shape.input_width % 2 == 0;
}

bool fits_own_products(const ConvolutionProblem& problem, int chip_major) {
  return pointwise_backward_fits(problem.precision, pointwise_shape(problem.shape), chip_major);
}

// Whether the op is the convolution of such a decision, on this chip.
bool is_open(DecisionKind kind, const FusedOp& op, const Ops& ops, int chip_major) {
  const ConvolutionProblem& problem = *op.convolution;
  const ConvolutionShape& shape = problem.shape;
  const bool hopper_16_bit = chip_major == 9 && element_bytes(problem.precision) == 2;
  const bool has_statistics = op.with_sweep == ConvolutionOp::forward_statistics;
  switch (kind) {
    case DecisionKind::sweep:
      return op.with_sweep.has_value();
    case DecisionKind::stem_forward:
      return has_statistics && hopper_16_bit && is_stem(shape);
    case DecisionKind::stem_backward:
      return problem.op == ConvolutionOp::backward_weights && hopper_16_bit && is_stem(shape) &&
             std::ranges::any_of(ops.backward, [&](const FusedOp& other) {
               return other.kind == FusedKind::pool_gradient_apply && other.norm.conv == op.node;
             });
    case DecisionKind::fused_backward:
      return problem.op == ConvolutionOp::backward_data && is_pointwise(shape) &&
             fits_own_products(problem, chip_major);
    case DecisionKind::moments: {
      const PointwiseShape of = pointwise_shape(shape);
      return has_statistics && is_pointwise(shape) &&
             moments_fit(problem.precision, {of.rows, of.input_channels, of.output_channels},
                         chip_major);
    }
  }
  throw std::logic_error("unnamed DecisionKind");
}

std::vector<std::string> alternatives_of(DecisionKind kind, const ConvolutionProblem& problem,
                                         int chip_major) {
  if (kind == DecisionKind::sweep) return {cudnn_implementation};
  if (kind != DecisionKind::moments) return {own_implementation};
  if (!fits_own_products(problem, chip_major)) return {cudnn_implementation};
  return {own_implementation, cudnn_implementation};
}

void set(Keys& keys, const std::string& key, bool chosen) {
  chosen ? void(keys.insert(key)) : void(keys.erase(key));
}

std::set<std::string> texts_of(const std::vector<FusedOp>& list, const Ops& ops) {
  std::set<std::string> texts;
  for (const FusedOp& op : list) texts.insert(text_of(op, ops));
  return texts;
}

}  // namespace

std::vector<Decision> decisions_of(DecisionKind kind, const Ops& ops,
                                   int compute_capability_major) {
  std::map<std::string, Decision> found;
  for (const auto* pass : {&ops.forward, &ops.backward}) {
    for (const FusedOp& op : *pass) {
      if (!op.convolution || !is_open(kind, op, ops, compute_capability_major)) continue;
      Decision decision{kind, *op.convolution,
                        alternatives_of(kind, *op.convolution, compute_capability_major)};
      if (kind == DecisionKind::sweep) decision.problem = op.convolution->with(*op.with_sweep);
      found.try_emplace(decision.key(), decision).first->second.convs.push_back(op.node);
    }
  }
  std::vector<Decision> decisions;
  for (const auto& [key, decision] : found) decisions.push_back(decision);
  return decisions;
}

LoweringChoices with_choice(LoweringChoices choices, const Graph& graph, const Decision& decision,
                            const std::string& implementation, int conv) {
  const std::string problem = decision.problem.key();
  const std::string key = conv < 0 ? problem : key_at(problem, graph.node(conv).name);
  const bool apart = implementation == apart_implementation;
  switch (decision.kind) {
    case DecisionKind::sweep:
      set(choices.fused_sweeps, key, !apart);
      break;
    case DecisionKind::stem_forward:
      choices.own_stem_forward = !apart;
      break;
    case DecisionKind::stem_backward:
      choices.own_stem_backward = !apart;
      break;
    case DecisionKind::fused_backward:
      set(choices.fused_backward, key, !apart);
      break;
    case DecisionKind::moments:
      choices.input_moments.erase(key);
      if (apart) break;
      choices.input_moments[key] =
          implementation == own_implementation ? MomentsProducts::own : MomentsProducts::cudnn;
  }
  return choices;
}

OpsOfPart difference(const Ops& ops, const Ops& others) {
  const auto apart = [&](const std::vector<FusedOp>& list, const std::vector<FusedOp>& other) {
    const std::set<std::string> known = texts_of(other, others);
    std::vector<FusedOp> found;
    for (const FusedOp& op : list) {
      if (!known.contains(text_of(op, ops))) found.push_back(op);
    }
    return found;
  };
  return {apart(ops.forward, others.forward), apart(ops.backward, others.backward)};
}

}  // namespace nearmetal::cuda
