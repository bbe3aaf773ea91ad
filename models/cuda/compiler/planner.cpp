#include "models/cuda/compiler/planner.h"

#include <algorithm>
#include <stdexcept>

#include "models/cuda/compiler/plan_cudnn.h"
#include "models/cuda/compiler/plan_images.h"
#include "models/cuda/compiler/plan_tokens.h"
#include "models/cuda/compiler/resources.h"

namespace nearmetal::cuda {
namespace {

void require_one_convolution(Planner& p, int input) {
  if (p.graph.is(p.graph.sole_consumer(input), OpKind::conv)) return;
  unsupported(p.node(input), "one convolution must read the image, and nothing else");
}

// The value that a stage received is the input.
void forward_boundary(Planner& p, int boundary) {
  if (boundary > 0) p.set_value(boundary, p.value(p.node(boundary).inputs[0]));
}

void backward_boundary(Planner& p, int boundary) {
  if (boundary == 0) return;
  p.add_gradient(p.node(boundary).inputs[0], {p.ops.received_gradient});
}

// How a kind of node is planned that no pattern takes. Null: there is nothing to do.
struct Rule {
  OpKind op;
  void (*forward)(Planner& p, int node) = nullptr;
  void (*backward)(Planner& p, int node) = nullptr;
};

const Rule& rule_of(OpKind op) {
  static constexpr std::array rules = {
      Rule{OpKind::input, require_one_convolution},
      Rule{OpKind::token_ids},
      Rule{OpKind::embedding, forward_embedding, backward_embedding},
      Rule{OpKind::conv, forward_convolution, backward_convolution},
      Rule{OpKind::batch_norm, forward_plain_norm, backward_plain_norm},
      Rule{OpKind::layer_norm, forward_layer_norm, backward_layer_norm},
      Rule{OpKind::relu},  // always of a pattern, as are the next and max pooling
      Rule{OpKind::gelu},
      Rule{OpKind::add, forward_add, backward_add},
      Rule{OpKind::token_linear, forward_token_linear, backward_linear},
      Rule{OpKind::attention, forward_attention, backward_attention},
      Rule{OpKind::class_token, forward_class_token, backward_class_token},
      Rule{OpKind::positions, forward_positions, backward_positions},
      Rule{OpKind::select_token, forward_select_token, backward_select_token},
      Rule{OpKind::max_pool},
      Rule{OpKind::global_average_pool, forward_average_pool, backward_average_pool},
      Rule{OpKind::linear, forward_classifier, backward_linear},
      Rule{OpKind::softmax_cross_entropy, forward_loss},  // with its gradient
      Rule{OpKind::span_loss, forward_loss},
      Rule{OpKind::boundary, forward_boundary, backward_boundary},
  };
  static_assert(rules.size() == names_of(OpKind{}).size());
  return *std::ranges::find(rules, op, &Rule::op);
}

// A product runs before the pattern that begins with its bias.
void forward(Planner& p, int i) {
  if (p.patterns.is_inside(i)) return;  // the end of its pattern computes it
  if (p.by_cudnn() && forward_by_cudnn(p, i)) return;
  if (const NormPattern* pattern = p.patterns.norm(i)) return forward_norm(p, *pattern);
  const Rule& rule = rule_of(p.node(i).op);
  if (rule.forward != nullptr) rule.forward(p, i);
  const ActivationPattern* pattern = p.patterns.activation(i);
  const bool is_planned = p.graph.is(i, OpKind::conv) || p.graph.is(i, OpKind::token_linear);
  if (pattern != nullptr && !is_planned) forward_activation(p, *pattern);
}

void backward(Planner& p, int i) {
  if (p.patterns.is_inside(i)) return;
  if (p.by_cudnn() && backward_by_cudnn(p, i)) return;
  if (const NormPattern* pattern = p.patterns.norm(i)) return backward_norm(p, *pattern);
  if (const ActivationPattern* pattern = p.patterns.activation(i)) backward_activation(p, *pattern);
  const Rule& rule = rule_of(p.node(i).op);
  if (rule.backward != nullptr) rule.backward(p, i);
}

}  // namespace

Planner::Planner(const Graph& graph, const ProgramOptions& options, const LoweringChoices& choices,
                 const PlannedDevice& device)
    : graph(graph),
      options(options),
      choices(choices),
      device(device),
      patterns(graph, options.kernels, options.precision),
      shapes{graph, options.batch_size, options.precision},
      gradients(graph.nodes().size()) {}

ValueId Planner::new_value(const std::string& name, int64_t bytes, Content content) {
  ops.values.push_back({name, bytes, content});
  return static_cast<ValueId>(ops.values.size()) - 1;
}

ValueId Planner::leave(int node, Part part, int64_t bytes, Content content) {
  const ValueId value = new_value(graph.node(node).name + to_string(part), bytes, content);
  if (part == Part::value || part == Part::mask) ops.values[value].node = node;
  return left[{node, part}] = value;
}

ValueId Planner::leave_value(int node) {
  const bool rectified = graph.is(node, OpKind::relu);
  return leave(node, Part::value, shapes.bytes(node),
               rectified ? Content::rectified : Content::numbers);
}

ValueId Planner::find(int node, Part part) const {
  const auto found = left.find({node, part});
  return found == left.end() ? no_value : found->second;
}

ValueId Planner::value(int node) const {
  const ValueId found = find(node, Part::value);
  if (found == no_value) throw std::logic_error("no kernel leaves " + graph.node(node).name);
  return found;
}

FusedOp& Planner::add(FusedKind kind, Phase phase, const std::string& name, int node,
                      std::initializer_list<Operand> operands) {
  FusedOp& op =
      (phase == Phase::forward ? ops.forward : ops.backward)
          .emplace_back(FusedOp{.kind = kind, .phase = phase, .name = name, .node = node});
  for (const Operand& operand : operands) {
    if (operand.value == no_value) continue;
    op.operands.push_back(operand);
    const auto bytes = static_cast<double>(ops.values[operand.value].bytes);
    if (operand.counted) op.bytes += operand.access == Access::update ? 2 * bytes : bytes;
  }
  return op;
}

FusedOp& Planner::add_forward(FusedKind kind, int index) {
  const ValueId x = value(node(index).inputs[0]);
  return add(kind, Phase::forward, node(index).name, index,
             {reads(Role::x, x), writes(Role::y, leave_value(index))});
}

FusedOp& Planner::add_backward(FusedKind kind, int index) {
  const ValueId dy = gradient_of(index);
  return add(kind, Phase::backward, node(index).name, index,
             {reads(Role::dy, dy), writes(Role::dx, leave_gradient(node(index).inputs[0], index))});
}

ValueId Planner::new_gradient(int node, const std::string& by) {
  return new_value("gradient of " + graph.node(node).name + by, shapes.bytes(node),
                   Content::numbers);
}

ValueId Planner::leave_gradient(int node, int by) {
  const ValueId gradient = new_gradient(node, " by " + graph.node(by).name);
  add_gradient(node, {gradient});
  return gradient;
}

std::pair<ValueId, ValueId> Planner::gradients_of(int node, size_t most) {
  std::vector<Gradient>& all = gradients[node];
  std::vector<size_t> found;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].form != GradientForm::even_pixels) found.push_back(i);
  }
  if (found.empty()) unsupported(graph.node(node), "the loss does not depend on it");
  for (; found.size() > most; found.pop_back()) {
    const size_t last = found.back(), other = found[found.size() - 2];
    const ValueId left = all[last].value, right = all[other].value;
    const ValueId sum = new_value(
        "gradient of " + graph.node(node).name + " by " + std::to_string(all.size()) + " readers",
        ops.values[left].bytes, Content::numbers);
    add(by_cudnn() ? FusedKind::cudnn_sum : FusedKind::add, Phase::backward,
        graph.node(node).name + " gradients", node,
        {reads(Role::x, left), reads(Role::residual, right), writes(Role::y, sum)});
    all[other] = {sum};
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(last));
  }
  return {all[found[0]].value, found.size() == 2 ? all[found[1]].value : no_value};
}

int64_t Planner::gradient_count(int node) const {
  return std::ranges::count_if(gradients[node], [](const Gradient& gradient) {
    return gradient.form != GradientForm::even_pixels;
  });
}

const Gradient* Planner::gradient_in(int node, GradientForm form) const {
  const auto found = std::ranges::find(gradients[node], form, &Gradient::form);
  return found == gradients[node].end() ? nullptr : &*found;
}

Ops plan_ops(const Graph& graph, const ProgramOptions& options, const LoweringChoices& choices,
             const PlannedDevice& device) {
  Planner p(graph, options, choices, device);
  const int last = static_cast<int>(graph.nodes().size()) - 1;
  if (graph.receives()) {
    p.ops.input = p.leave_value(0);
  } else if (has_stem(graph)) {
    const ImageLayout layout =
        stem_image_layout(choices.stem, stem_convolution(graph), graph.image(), options.batch_size);
    p.ops.input = p.leave(0, Part::value, layout.stored_elements() * p.shapes.element_size(),
                          Content::numbers);
  }
  for (int i = 0; i <= last; ++i) forward(p, i);
  p.ops.output = p.find(last, Part::value);
  if (options.forward_only) return std::move(p.ops);
  if (graph.sends()) p.ops.received_gradient = p.new_gradient(last, " by the stage behind");
  for (int i = last; i >= 0; --i) backward(p, i);
  if (graph.receives()) p.ops.input_gradient = p.gradient_of(0);
  sum_layer_norms(p);
  return std::move(p.ops);
}

void unsupported(const Node& node, const std::string& reason) {
  throw std::invalid_argument("the CUDA backend cannot compute " + node.name + ": " + reason);
}

}  // namespace nearmetal::cuda
