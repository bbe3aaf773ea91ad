#include "models/cuda/compiler/plan_tokens.h"

#include <algorithm>

#include "models/cuda/kernels/layer_norm.h"
#include "models/cuda/kernels/tokens.h"

namespace nearmetal::cuda {
namespace {

void require_packs(const Planner& p, int node) {
  if (p.node(node).shape.channels % 8 != 0) {
    unsupported(p.node(node), "its features are not a multiple of 8");
  }
}

void require_packs(const Node& linear, const LinearShape& shape) {
  if (shape.inputs % 8 != 0) unsupported(linear, "its inputs are not a multiple of 8");
  if (shape.row_elements % 8 != 0) unsupported(linear, "its outputs are not a multiple of 8");
}

// One of the three products of a linear layer; the tuner chooses for those of tokens.
FusedOp& add_linear(Planner& p, const std::string& name, Phase phase, int linear,
                    const LinearProblem& problem, std::initializer_list<Operand> operands) {
  const Node& node = p.node(linear);
  FusedOp& op = p.add(FusedKind::linear, phase, name, linear, operands);
  op.linear = problem;
  // Classifiers are small, and plans from before products were timed have none of theirs.
  op.is_timed = node.op == OpKind::token_linear && !p.graph.are_logits(linear);
  op.flops = p.shapes.forward_flops(linear);
  op.bytes +=
      static_cast<double>(p.graph.parameters()[node.parameters[0]].size * p.shapes.element_size());
  return op;
}

// The sum that a product of tokens takes as its own, whose other summand is there; -1: none.
int sum_behind(const Planner& p, int linear) {
  const int sum = p.graph.sole_consumer(linear);
  if (p.by_cudnn() || p.patterns.activation(linear) == nullptr || !p.graph.is(sum, OpKind::add)) {
    return -1;
  }
  const std::vector<int>& added = p.node(sum).inputs;
  const int other = added[0] == linear ? added[1] : added[0];
  return p.find(other, Part::value) == no_value ? -1 : sum;
}

// The linear layer whose bias has as its gradient the sum over tokens of what this layer norm
// leaves as the gradient of its input; -1: none.
int bias_before(const Planner& p, int norm) {
  if (p.by_cudnn()) return -1;
  const int input = p.node(norm).inputs[0];
  // The first of its readers is the last that leaves a gradient.
  if (p.graph.consumers(input)[0] != norm) return -1;
  const auto has_bias = [&](int node, int reader) {
    const ActivationPattern* pattern = p.patterns.activation(node);
    return p.graph.is(node, OpKind::token_linear) && p.graph.sole_consumer(node) == reader &&
           pattern != nullptr && pattern->bias >= 0;
  };
  if (has_bias(input, norm)) return input;
  if (!p.graph.is(input, OpKind::add)) return -1;
  for (const int added : p.node(input).inputs) {
    if (has_bias(added, input)) return added;
  }
  return -1;
}

int64_t score_elements(const AttentionExtent& extent) {
  return extent.rows() * score_row_elements(extent);
}

// [tokens, head_features] each: of `packed` (part 0 q, 1 k, 2 v), or of [batch, tokens, features].
HeadMatrices part_of_packed(const AttentionExtent& extent, int part) {
  const int64_t features = extent.features();
  return {part * features, 3 * features, extent.head_features, extent.tokens * 3 * features};
}
HeadMatrices heads_of_tokens(const AttentionExtent& extent) {
  const int64_t features = extent.features();
  return {0, features, extent.head_features, extent.tokens * features};
}
// [tokens, tokens] each.
HeadMatrices score_matrices(const AttentionExtent& extent) {
  const int64_t row = score_row_elements(extent), matrix = extent.tokens * row;
  return {0, row, matrix, extent.heads * matrix};
}

void add_attention_product(Planner& p, Phase phase, int attention, const AttentionProduct& product,
                           ValueId a, ValueId b, ValueId d) {
  FusedOp& op = p.add(FusedKind::attention_product, phase, p.node(attention).name, attention,
                      {reads(Role::x, a), reads(Role::residual, b), writes(Role::y, d)});
  op.product = product;
  // Its two products forward are alike, and so are the four backward.
  op.flops = p.shapes.forward_flops(attention) / 2;
}

void forward_attention_products(Planner& p, int attention) {
  const AttentionExtent extent = p.shapes.attention(attention);
  const std::string& name = p.node(attention).name;
  const ValueId packed = p.value(p.node(attention).inputs[0]), y = p.leave_value(attention);
  const ValueId scores = p.new_value(name + " scores", score_elements(extent) * 4);
  const bool in_place = p.shapes.element_size() == 4;
  if (in_place) {
    p.left[{attention, Part::probabilities}] = scores;
  } else {
    p.leave(attention, Part::probabilities, score_elements(extent) * p.shapes.element_size());
  }
  const ValueId probabilities = p.find(attention, Part::probabilities);
  const int64_t tokens = extent.tokens, d = extent.head_features;
  const HeadMatrices square = score_matrices(extent);
  add_attention_product(p, Phase::forward, attention,
                        {part_of_packed(extent, 0), part_of_packed(extent, 1), square, tokens,
                         tokens, d, false, true, true},
                        packed, packed, scores);
  FusedOp& softmax =
      p.add(FusedKind::softmax, Phase::forward, name, attention,
            {reads(Role::x, scores), writes(Role::y, in_place ? no_value : probabilities)});
  if (in_place) softmax.operands[0].access = Access::update;
  add_attention_product(
      p, Phase::forward, attention,
      {square, part_of_packed(extent, 2), heads_of_tokens(extent), tokens, d, tokens},
      probabilities, packed, y);
}

void backward_attention_products(Planner& p, int attention) {
  const AttentionExtent extent = p.shapes.attention(attention);
  const std::string& name = p.node(attention).name;
  const int input = p.node(attention).inputs[0];
  const ValueId dy = p.gradient_of(attention), packed = p.value(input);
  const ValueId probabilities = p.find(attention, Part::probabilities);
  const ValueId packed_gradient = p.leave_gradient(input, attention);
  const ValueId gradient =
      p.new_value("gradient of " + name + " probabilities", score_elements(extent) * 4);
  const bool in_place = p.shapes.element_size() == 4;
  const ValueId score_gradient =
      in_place ? gradient
               : p.new_value("gradient of " + name + " scores",
                             score_elements(extent) * p.shapes.element_size());
  const int64_t tokens = extent.tokens, d = extent.head_features;
  const HeadMatrices square = score_matrices(extent), dy_heads = heads_of_tokens(extent);
  const auto part = [&](int index) { return part_of_packed(extent, index); };
  const auto add = [&](const AttentionProduct& product, ValueId a, ValueId b, ValueId result) {
    add_attention_product(p, Phase::backward, attention, product, a, b, result);
  };
  add({square, dy_heads, part(2), tokens, d, tokens, true}, probabilities, dy, packed_gradient);
  add({dy_heads, part(2), square, tokens, tokens, d, false, true, true}, dy, packed, gradient);
  FusedOp& softmax = p.add(FusedKind::softmax_gradient, Phase::backward, name, attention,
                           {reads(Role::y, probabilities), reads(Role::dy, gradient),
                            writes(Role::dx, in_place ? no_value : score_gradient)});
  if (in_place) softmax.operands[1].access = Access::update;
  add({square, part(1), part(0), tokens, d, tokens}, score_gradient, packed, packed_gradient);
  add({square, part(0), part(1), tokens, d, tokens, true}, score_gradient, packed, packed_gradient);
}

}  // namespace

void forward_classifier(Planner& p, int linear) {
  const Node& node = p.node(linear);
  const LinearShape shape = p.shapes.linear(linear);
  require_packs(node, shape);
  const bool logits = p.graph.are_logits(linear);
  // Logits stay fp32: the loss takes their exponentials.
  const ValueId y =
      p.leave(linear, Part::value,
              shape.samples * shape.row_elements * (logits ? float_bytes : p.shapes.element_size()),
              Content::numbers);
  add_linear(p, node.name, Phase::forward, linear, {LinearOp::forward, shape, p.options.precision},
             {reads(Role::x, p.value(node.inputs[0])), writes(Role::y, y)});
  if (!p.graph.consumers(linear).empty()) return;
  // The loss adds the bias of logits itself; where there is none, a sweep does.
  p.ops.logits = y;
  p.add(FusedKind::classifier_bias, Phase::forward, p.graph.parameters()[node.parameters[1]].name,
        linear, {reads(Role::y, y)})
      .operands[0]
      .access = Access::update;
}

void forward_token_linear(Planner& p, int linear) {
  if (p.graph.are_logits(linear)) return forward_classifier(p, linear);
  const Node& node = p.node(linear);
  const LinearShape shape = p.shapes.linear(linear);
  require_packs(node, shape);
  const int sum = sum_behind(p, linear);
  ValueId residual = no_value;
  if (sum >= 0) {
    const std::vector<int>& added = p.node(sum).inputs;
    residual = p.value(added[0] == linear ? added[1] : added[0]);
  }
  const ValueId x = p.value(node.inputs[0]), y = p.leave_value(sum < 0 ? linear : sum);
  // A sweep behind it adds the bias before an activation.
  const int bias = p.patterns.activation(linear) == nullptr ? -1 : node.parameters[1];
  add_linear(p, sum < 0 ? node.name : node.name + " + " + p.node(sum).name, Phase::forward, linear,
             {LinearOp::forward, shape, p.options.precision, bias >= 0, sum >= 0},
             {reads(Role::x, x), writes(Role::y, y), reads(Role::residual, residual)})
      .bias = bias;
}

void backward_linear(Planner& p, int linear) {
  const Node& node = p.node(linear);
  const int input = node.inputs[0];
  const ValueId dy = p.gradient_of(linear), x = p.value(input);
  const ValueId dx = p.leave_gradient(input, linear);
  const LinearShape shape = p.shapes.linear(linear);
  if (p.graph.are_logits(linear)) {
    p.add(FusedKind::classifier_bias_gradient, Phase::backward, node.name, linear,
          {reads(Role::dy, dy)})
        .gradients = {node.parameters[1]};
  }
  add_linear(p, node.name, Phase::backward, linear,
             {LinearOp::weight_gradient, shape, p.options.precision},
             {reads(Role::dy, dy), reads(Role::x, x)})
      .gradients = {node.parameters[0]};
  add_linear(p, node.name, Phase::backward, linear,
             {LinearOp::input_gradient, shape, p.options.precision},
             {reads(Role::dy, dy), writes(Role::dx, dx)});
}

// With the gradient of the logits.
void forward_loss(Planner& p, int loss) {
  const bool of_spans = p.graph.is(loss, OpKind::span_loss);
  const OpKind layer = of_spans ? OpKind::token_linear : OpKind::linear;
  const int linear = p.node(loss).inputs[0];
  if (!p.graph.is(linear, layer) || !p.graph.are_logits(linear)) {
    unsupported(p.node(loss), std::string("it is not the only reader of a ") +
                                  (of_spans ? "linear layer of tokens" : "linear layer"));
  }
  const LogitsShape shape = p.shapes.logits(linear);
  ValueId gradient = no_value;
  if (!p.options.forward_only) {
    gradient =
        p.new_value("gradient of " + p.node(linear).name,
                    shape.rows * shape.row_elements * p.shapes.element_size(), Content::numbers);
    p.add_gradient(linear, {gradient});
  }
  p.add(of_spans ? FusedKind::span_loss : FusedKind::softmax_loss, Phase::forward,
        p.node(loss).name, loss, {reads(Role::x, p.value(linear)), writes(Role::dx, gradient)})
      .bias = p.node(linear).parameters[1];
}

void forward_layer_norm(Planner& p, int norm) {
  const Node& node = p.node(norm);
  require_packs(p, norm);
  if (const int64_t most = most_layer_norm_features(p.options.precision);
      node.shape.channels > most) {
    unsupported(node, "it has more than " + std::to_string(most) + " features");
  }
  const ValueId x = p.value(node.inputs[0]), y = p.leave_value(norm);
  const ValueId statistics = p.leave_for_backward(
      norm, Part::statistics, layer_norm_statistics_bytes(p.shapes.extent(norm).rows));
  p.add(FusedKind::layer_norm, Phase::forward, node.name, norm,
        {reads(Role::x, x), writes(Role::y, y), writes(Role::statistics, statistics)});
}

// Adds another gradient of what it reads, such as that of a residual branch, where one is there. Of
// what it leaves it takes the sum over the tokens where that is the gradient of a bias.
void backward_layer_norm(Planner& p, int norm) {
  const Node& node = p.node(norm);
  const int input = node.inputs[0];
  std::vector<Gradient>& gradients = p.gradients[input];
  // No kernel takes a second gradient of both what it leaves and what it reads.
  const auto [dy, dy_second] = p.gradients_of(norm, gradients.empty() ? 2 : 1);
  ValueId other = no_value;
  if (!gradients.empty()) {
    other = gradients.back().value;
    gradients.pop_back();
  }
  const int linear = gradients.empty() ? bias_before(p, norm) : -1;
  const int summed = linear < 0 ? -1 : p.node(linear).parameters[1];
  const ValueId dx = p.new_gradient(input, " by " + node.name);
  gradients.push_back({dx, GradientForm::whole, linear});
  const Extent extent = p.shapes.extent(norm);
  const ValueId partial_sums = p.new_value(
      node.name + " partial sums",
      layer_norm_sums_bytes(p.options.precision, extent, summed >= 0, p.device.multiprocessors));
  const LayerNormGradients sums{extent, node.parameters[0], node.parameters[1], summed};
  p.layer_norms.emplace_back(partial_sums, sums);
  const std::string name =
      summed < 0 ? node.name : node.name + " + " + p.graph.parameters()[summed].name;
  FusedOp& op =
      p.add(FusedKind::layer_norm_gradient, Phase::backward, name, norm,
            {reads(Role::x, p.value(input)), reads(Role::dy, dy), reads(Role::dy_second, dy_second),
             reads(Role::statistics, p.find(norm, Part::statistics)), reads(Role::residual, other),
             writes(Role::dx, dx), writes(Role::sums, partial_sums)});
  op.layer_norms = {sums};
}

// One launch for many: each alone would take as long as the launch.
void sum_layer_norms(Planner& p) {
  const auto most = static_cast<size_t>(LayerNormSumsList::most);
  for (size_t first = 0; first < p.layer_norms.size(); first += most) {
    FusedOp op{.kind = FusedKind::layer_norm_sums, .phase = Phase::backward, .name = "layer norms"};
    for (size_t i = first; i < std::min(p.layer_norms.size(), first + most); ++i) {
      const auto& [partial_sums, sums] = p.layer_norms[i];
      op.operands.push_back(reads(Role::sums, partial_sums));
      op.layer_norms.push_back(sums);
      op.bytes += static_cast<double>(p.ops.values[partial_sums].bytes);
      for (const int parameter : {sums.scale, sums.bias, sums.bias_before}) {
        if (parameter >= 0) op.gradients.push_back(parameter);
      }
    }
    p.ops.ends.push_back(std::move(op));
  }
}

void forward_gelu(Planner& p, const ActivationPattern& pattern) {
  const int output = pattern.output();
  require_packs(p, output);
  const ValueId x = p.value(pattern.input);
  // The backward pass reads x.
  const bool in_place = pattern.bias >= 0 && p.options.forward_only;
  if (in_place) p.set_value(output, x);
  p.add(FusedKind::gelu, Phase::forward, name_of(p.graph, pattern), output,
        {in_place ? updates(Role::x, x) : reads(Role::x, x),
         writes(Role::y, in_place ? no_value : p.leave_value(output))})
      .bias = pattern.bias;
}

void backward_gelu(Planner& p, const ActivationPattern& pattern) {
  const ValueId dy = p.gradient_of(pattern.gelu), x = p.value(pattern.input);
  FusedOp& op =
      p.add(FusedKind::gelu_gradient, Phase::backward, name_of(p.graph, pattern), pattern.gelu,
            {reads(Role::dy, dy), reads(Role::x, x),
             writes(Role::dx, p.leave_gradient(pattern.input, pattern.gelu))});
  op.bias = pattern.bias;
  if (op.bias >= 0) op.gradients = {op.bias};
}

void forward_attention(Planner& p, int attention) {
  const Node& node = p.node(attention);
  const AttentionProblem problem{AttentionOp::forward, p.shapes.attention(attention),
                                 p.options.precision};
  if (problem.extent.head_features % 8 != 0) {
    unsupported(node, "the features of a head are not a multiple of 8");
  }
  if (!p.choices.fused_attention.contains(problem.key())) {
    return forward_attention_products(p, attention);
  }
  const ValueId packed = p.value(node.inputs[0]), y = p.leave_value(attention);
  const ValueId log_sums = p.leave(attention, Part::log_sums, problem.extent.rows() * 4);
  FusedOp& op =
      p.add(FusedKind::attention, Phase::forward, node.name, attention,
            {reads(Role::x, packed), writes(Role::y, y), writes(Role::statistics, log_sums)});
  op.attention = problem;
  op.flops = p.shapes.forward_flops(attention);
}

void backward_attention(Planner& p, int attention) {
  const AttentionProblem forward{AttentionOp::forward, p.shapes.attention(attention),
                                 p.options.precision};
  if (!p.choices.fused_attention.contains(forward.key())) {
    return backward_attention_products(p, attention);
  }
  const Node& node = p.node(attention);
  const int input = node.inputs[0];
  const ValueId dy = p.gradient_of(attention), packed = p.value(input);
  const ValueId packed_gradient = p.leave_gradient(input, attention);
  const ValueId dots = p.new_value(node.name + " dots", forward.extent.rows() * 4);
  FusedOp& op =
      p.add(FusedKind::attention_gradient, Phase::backward, node.name, attention,
            {reads(Role::x, packed), reads(Role::y, p.value(attention)), reads(Role::dy, dy),
             reads(Role::statistics, p.find(attention, Part::log_sums)),
             writes(Role::scratch, dots), writes(Role::dx, packed_gradient)});
  op.attention = forward.with(AttentionOp::backward);
  op.flops = 2 * p.shapes.forward_flops(attention);
}

void forward_class_token(Planner& p, int node) {
  require_packs(p, node);
  p.add_forward(FusedKind::class_token, node);
}

void backward_class_token(Planner& p, int node) {
  p.add_backward(FusedKind::class_token_gradient, node).gradients = {p.node(node).parameters[0]};
}

void forward_positions(Planner& p, int node) {
  require_packs(p, node);
  p.add_forward(FusedKind::positions, node);
}

void backward_positions(Planner& p, int node) {
  const ValueId dy = p.gradient_of(node);
  p.add_gradient(p.node(node).inputs[0], {dy});
  p.add(FusedKind::positions_gradient, Phase::backward, p.node(node).name, node,
        {reads(Role::dy, dy)})
      .gradients = {p.node(node).parameters[0]};
}

void forward_select_token(Planner& p, int node) {
  require_packs(p, node);
  FusedOp& op = p.add_forward(FusedKind::select_token, node);
  op.bytes = 2.0 * static_cast<double>(p.shapes.bytes(node));  // of x it reads as many
}

void backward_select_token(Planner& p, int node) {
  p.add_backward(FusedKind::select_token_gradient, node);
}

void forward_embedding(Planner& p, int embedding) {
  const Node& node = p.node(embedding);
  require_packs(p, embedding);
  if (p.graph.parameters()[node.parameters[0]].dims[0] > most_words) {
    unsupported(node, "it has more than " + std::to_string(most_words) + " words");
  }
  const TokenExtent extent = p.shapes.tokens(embedding);
  p.add(FusedKind::embedding, Phase::forward, node.name, embedding,
        {writes(Role::y, p.leave_value(embedding))})
      .bytes += 4.0 * static_cast<double>(extent.elements() + extent.sample_elements());
}

// Nothing reads the gradient of ids.
void backward_embedding(Planner& p, int embedding) {
  const Node& node = p.node(embedding);
  const ValueId dy = p.gradient_of(embedding);
  const TokenExtent extent = p.shapes.tokens(embedding);
  const ValueId place_sums =
      p.new_value(node.name + " sums of places", extent.sample_elements() * float_bytes);
  p.add(FusedKind::places_gradient, Phase::backward, node.name, embedding,
        {reads(Role::dy, dy), writes(Role::sums, place_sums)})
      .gradients = {node.parameters[1]};
  p.add(FusedKind::types_gradient, Phase::backward, node.name, embedding,
        {reads(Role::sums, place_sums)})
      .gradients = {node.parameters[2]};
  const ValueId sorted = p.new_value(node.name + " sorted tokens", sorted_bytes(extent));
  FusedOp& words = p.add(FusedKind::words_gradient, Phase::backward, node.name, embedding,
                         {reads(Role::dy, dy), writes(Role::scratch, sorted)});
  words.gradients = {node.parameters[0]};
  words.bytes +=
      static_cast<double>(p.graph.parameters()[node.parameters[0]].size * p.shapes.element_size());
}

}  // namespace nearmetal::cuda
