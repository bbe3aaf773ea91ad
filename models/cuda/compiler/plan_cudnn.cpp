#include "models/cuda/compiler/plan_cudnn.h"

#include "models/cuda/compiler/emission.h"
#include "models/cuda/libraries/layers.h"

namespace nearmetal::cuda {
namespace {

// A batch norm, alone or with what cuDNN computes in the same kernel.
NormPattern norm_of(const Planner& p, int output) {
  if (const NormPattern* pattern = p.patterns.norm(output)) return *pattern;
  return {.conv = p.node(output).inputs[0], .norm = output, .output = output};
}

std::string norm_name(const Planner& p, int output) {
  const NormPattern* pattern = p.patterns.norm(output);
  return pattern == nullptr ? p.node(output).name : name_of(p.graph, *pattern);
}

// Deviceless, what cuDNN keeps is not known: a bit for each element as of a mask.
int64_t norm_reserve_bytes(const Planner& p, const NormPattern& norm) {
  const Shape& image = p.node(norm.output).shape;
  if (p.device.cudnn == nullptr) return p.shapes.batch * image.elements() / 8;
  return NormLayer(p.device.cudnn, p.options.precision, p.shapes.batch, image, operations_of(norm),
                   product_workspace)
      .reserve_bytes;
}

void forward_norm_layer(Planner& p, int output) {
  const NormPattern norm = norm_of(p, output);
  const ValueId x = p.value(norm.conv);
  const ValueId residual = norm.residual < 0 ? no_value : p.value(norm.residual);
  const ValueId y = p.leave_value(output);
  const int64_t bytes = norm_reserve_bytes(p, norm);
  const ValueId reserve = bytes > 0 ? p.leave(output, Part::reserve, bytes) : no_value;
  p.add(FusedKind::cudnn_norm, Phase::forward, norm_name(p, output), output,
        {reads(Role::x, x), reads(Role::residual, residual), writes(Role::y, y),
         writes(Role::reserve, reserve)})
      .norm = norm;
}

void backward_norm_layer(Planner& p, int output) {
  const NormPattern norm = norm_of(p, output);
  const ValueId x = p.value(norm.conv), dy = p.gradient_of(output);
  const ValueId y = norm.output == norm.norm ? no_value : p.value(output);
  const ValueId dx = p.leave_gradient(norm.conv, output);
  const ValueId residual = norm.residual < 0 ? no_value : p.leave_gradient(norm.residual, output);
  FusedOp& op = p.add(
      FusedKind::cudnn_norm_gradient, Phase::backward, norm_name(p, output), output,
      {reads(Role::x, x), reads(Role::y, y), reads(Role::dy, dy), writes(Role::dx, dx),
       writes(Role::residual_dx, residual), reads(Role::reserve, p.find(output, Part::reserve))});
  op.norm = norm;
  op.gradients = p.node(norm.norm).parameters;
}

void backward_pool_layer(Planner& p, int pool) {
  const int input = p.node(pool).inputs[0];
  const ValueId x = p.value(input), y = p.value(pool), dy = p.gradient_of(pool);
  p.add(FusedKind::cudnn_pool_gradient, Phase::backward, p.node(pool).name, pool,
        {reads(Role::x, x), reads(Role::y, y), reads(Role::dy, dy),
         writes(Role::dx, p.leave_gradient(input, pool))});
}

}  // namespace

bool forward_by_cudnn(Planner& p, int node) {
  const bool ends_norm = p.patterns.norm(node) != nullptr;
  if (p.graph.is(node, OpKind::batch_norm) || (p.graph.is(node, OpKind::relu) && ends_norm)) {
    forward_norm_layer(p, node);
    return true;
  }
  if (!p.graph.is(node, OpKind::global_average_pool)) return false;
  p.add_forward(FusedKind::cudnn_pool, node);
  return true;
}

bool backward_by_cudnn(Planner& p, int node) {
  if (p.patterns.norm(node) != nullptr || p.graph.is(node, OpKind::batch_norm)) {
    backward_norm_layer(p, node);
    return true;
  }
  if (!p.graph.is(node, OpKind::global_average_pool)) return false;
  backward_pool_layer(p, node);
  return true;
}

void forward_cudnn_activation(Planner& p, const ActivationPattern& pattern) {
  if (pattern.pool >= 0) return void(p.add_forward(FusedKind::cudnn_pool, pattern.pool));
  ValueId x = p.value(pattern.input);
  if (pattern.bias >= 0) {
    p.add(FusedKind::cudnn_bias, Phase::forward, p.graph.parameters()[pattern.bias].name,
          pattern.input, {updates(Role::x, x)})
        .bias = pattern.bias;
  }
  const int output = pattern.output();
  const std::string& name = p.node(output).name;
  if (pattern.residual >= 0) {
    const ValueId sum = p.new_value(name + " sum", p.shapes.bytes(output), Content::numbers);
    p.add(FusedKind::cudnn_sum, Phase::forward, name, output,
          {reads(Role::x, x), reads(Role::residual, p.value(pattern.residual)),
           writes(Role::y, sum)});
    x = sum;
  }
  p.set_value(output, x);
  if (pattern.relu < 0) return;
  // In place where nothing else reads x; a pooling's backward pass would.
  const bool in_place = p.graph.consumers(pattern.input).size() == 1 &&
                        !p.graph.is(pattern.input, OpKind::max_pool) &&
                        !p.graph.is(pattern.input, OpKind::global_average_pool);
  p.add(FusedKind::cudnn_relu, Phase::forward, name, output,
        {in_place ? updates(Role::x, x) : reads(Role::x, x),
         writes(Role::y, in_place ? no_value : p.leave_value(output))});
}

void backward_cudnn_activation(Planner& p, const ActivationPattern& pattern) {
  if (pattern.pool >= 0) return backward_pool_layer(p, pattern.pool);
  const int output = pattern.output();
  ValueId dy = p.gradient_of(output);
  if (pattern.relu >= 0) {
    const ValueId dx = p.new_gradient(output, " before its ReLU");
    p.add(FusedKind::cudnn_relu_gradient, Phase::backward, p.node(output).name, output,
          {reads(Role::y, p.value(output)), reads(Role::dy, dy), writes(Role::dx, dx)});
    p.add_gradient(pattern.input, {dx});
    dy = dx;
  }
  // A batch norm takes the bias before it away, and with it the gradient.
  if (pattern.bias < 0 || p.graph.norm_behind(pattern.input) >= 0) return;
  FusedOp& op =
      p.add(FusedKind::activation_gradient, Phase::backward,
            p.graph.parameters()[pattern.bias].name, pattern.input, {reads(Role::dy, dy)});
  op.bias = pattern.bias;
  op.gradients = {pattern.bias};
}

}  // namespace nearmetal::cuda
