#include "models/cuda/compiler/plan_images.h"

#include <utility>

#include "models/cuda/compiler/plan_cudnn.h"
#include "models/cuda/compiler/plan_moments.h"
#include "models/cuda/compiler/plan_tokens.h"
#include "models/cuda/kernels/activation.h"

namespace nearmetal::cuda {
namespace {

// The gradient at the input of a 1x1 convolution of stride 2 is zero but at even pixels. A block
// end takes those alone from one of its consumers.
bool leaves_even_pixels(const Planner& p, int conv) {
  const Node& node = p.node(conv);
  const int input = node.inputs[0];
  const std::vector<int>& consumers = p.graph.consumers(input);
  const NormPattern* pattern = p.patterns.norm(input);
  return !p.by_cudnn() && node.window == Window{1, 2, 0} && p.graph.is(input, OpKind::relu) &&
         consumers.size() == 2 && consumers.back() == conv && pattern != nullptr &&
         pattern->residual >= 0;
}

// The pattern that begins with this convolution's bias, and the operation that does both.
struct Epilogue {
  const ActivationPattern* pattern;
  ConvolutionOp op;
};
std::optional<Epilogue> epilogue(const Planner& p, int conv) {
  int end = conv;
  const ActivationPattern* pattern = p.patterns.activation(end);
  while (pattern == nullptr && (end = p.graph.sole_consumer(end)) >= 0) {
    pattern = p.patterns.activation(end);
  }
  const bool fits = pattern != nullptr && pattern->input == conv && pattern->bias >= 0;
  if (!fits || pattern->pool >= 0 || pattern->gelu >= 0) return std::nullopt;
  return Epilogue{pattern, pattern->residual >= 0 ? ConvolutionOp::forward_residual
                           : pattern->relu >= 0   ? ConvolutionOp::forward_activation
                                                  : ConvolutionOp::forward_bias};
}

void add_statistics(Planner& p, int norm) {
  const int input = p.node(norm).inputs[0];
  p.add(FusedKind::batch_statistics, Phase::forward, p.node(norm).name, norm,
        {reads(Role::x, p.value(input))})
      .norm = {.conv = input, .norm = norm};
}

void forward_norm_pool(Planner& p, const NormPattern& pattern) {
  const int pool = pattern.pool;
  const ValueId y = p.leave_value(pool);
  const int64_t bytes = p.shapes.bytes(pool);
  const ValueId winner =
      p.leave_for_backward(pool, Part::winner, bytes / p.shapes.element_size(), Content::winners);
  const ValueId winner_x = p.leave_for_backward(pool, Part::winner_x, bytes, Content::numbers);
  p.add(FusedKind::normalise_pool, Phase::forward, name_of(p.graph, pattern), pool,
        {reads(Role::x, p.value(pattern.conv)), writes(Role::y, y), writes(Role::winner, winner),
         writes(Role::winner_x, winner_x), reads(Role::sums, p.find(pattern.conv, Part::sums))})
      .norm = pattern;
}

void backward_norm_pool(Planner& p, const NormPattern& pattern) {
  const int pool = pattern.pool;
  const auto [dy, dy_second] = p.gradients_of(pool);
  const ValueId dz = p.new_gradient(pool, " before its ReLU");
  const std::string name = name_of(p.graph, pattern);
  FusedOp& sums = p.add(FusedKind::norm_gradient_sums, Phase::backward, name, pool,
                        {reads(Role::dy, dy), reads(Role::dy_second, dy_second),
                         reads(Role::x, p.find(pool, Part::winner_x)), writes(Role::dz, dz)});
  sums.norm = pattern;
  sums.relu = true;
  sums.incoming = dy_second == no_value ? Incoming::one : Incoming::two;
  sums.gradients = p.node(pattern.norm).parameters;
  if (p.shapes.is_stem(pattern.conv) && p.choices.own_stem_backward) {
    return p.add_gradient(pattern.conv, {dz, GradientForm::behind_pool});
  }
  p.add(FusedKind::pool_gradient_apply, Phase::backward, name, pool,
        {reads(Role::dz, dz), reads(Role::winner, p.find(pool, Part::winner)),
         reads(Role::x, p.value(pattern.conv)),
         writes(Role::dx, p.leave_gradient(pattern.conv, pattern.norm))})
      .norm = pattern;
}

void backward_activation_pool(Planner& p, const ActivationPattern& pattern) {
  const ValueId dy = p.gradient_of(pattern.pool);
  FusedOp& op = p.add(FusedKind::activation_pool_gradient, Phase::backward,
                      name_of(p.graph, pattern), pattern.pool,
                      {reads(Role::dy, dy), reads(Role::winner, p.find(pattern.pool, Part::winner)),
                       writes(Role::dx, p.leave_gradient(pattern.input, pattern.pool))});
  op.bias = pattern.bias;
  if (op.bias >= 0) op.gradients = {op.bias};
}

void mask_stem_gradient(Planner& p, int conv) {
  if (p.choices.stem != StemForm::space_to_depth) return;  // padded channels are zero images
  p.add(FusedKind::stem_mask, Phase::backward, p.node(conv).name, conv, {}).gradients = {
      p.node(conv).parameters[0]};
}

// The batch norm of the block end by moments before this convolution whose mask and sums its fused
// backward kernel takes on: it adds the gradient of the only other consumer, of all pixels or of
// even ones alone. -1: none.
int joined_end(const Planner& p, int conv) {
  const int input = p.node(conv).inputs[0];
  const NormPattern* end = p.patterns.norm(input);
  const bool one_other = p.graph.consumers(input).size() == 2 && p.gradients[input].size() == 1;
  const bool joins = end != nullptr && end->output == input && is_by_moments(p, *end) &&
                     one_other && pointwise_backward_joins(p.shapes.pointwise(conv));
  return joins ? end->norm : -1;
}

void backward_pointwise(Planner& p, int conv, Gradient dz) {
  const int input = p.node(conv).inputs[0], norm = p.graph.norm_behind(conv);
  std::string name = p.node(norm).name + " + " + p.node(conv).name;
  const int end = joined_end(p, conv);
  Gradient second;
  ValueId dx = no_value;
  if (end >= 0) {
    second = std::exchange(p.gradients[input], {}).front();
    name += " + " + p.node(input).name;
    dx = p.new_gradient(input, " before its ReLU");
    p.add_gradient(input, {dx, GradientForm::masked});
  } else {
    dx = p.leave_gradient(input, conv);
  }
  FusedOp& op = add_pointwise_backward(
      p, FusedKind::pointwise_backward, name, conv,
      {reads(Role::dz, dz.value), reads(Role::y, p.value(conv)), reads(Role::x, p.value(input)),
       reads(Role::dx_second, second.value), writes(Role::dx, dx)});
  op.norm = {.conv = conv, .norm = norm};
  if (second.form == GradientForm::even_pixels) op.incoming = Incoming::two_second_at_even_pixels;
  op.relu = dz.form == GradientForm::behind_norm_relu;
  op.joined_norm = end;
  if (end >= 0) op.gradients.push_back(p.node(end).parameters[1]);
}

void backward_stem(Planner& p, int conv, ValueId dz) {
  const int norm = p.graph.norm_behind(conv);
  const int pool = p.graph.sole_consumer(p.graph.sole_consumer(norm));
  const NormPattern& pattern = *p.patterns.norm(pool);
  const ValueId partial_sums = p.new_value(p.node(conv).name + " partial sums of weights",
                                           stem_backward_scratch_bytes(p.device.multiprocessors));
  FusedOp& op = p.add(FusedKind::stem_backward, Phase::backward,
                      name_of(p.graph, pattern) + " + " + p.node(conv).name, conv,
                      {reads(Role::dz, dz), reads(Role::winner, p.find(pool, Part::winner)),
                       reads(Role::y, p.value(conv)),
                       reads(Role::x, p.value(p.node(conv).inputs[0])), scratch(partial_sums)});
  op.norm = pattern;
  op.gradients = {p.node(conv).parameters[0]};
  op.flops = p.shapes.forward_flops(conv);
}

}  // namespace

int summed_norm(const Planner& p, int conv) {
  return p.by_cudnn() ? -1 : p.graph.norm_behind(conv);
}

ConvolutionProblem convolution_problem(const Planner& p, ConvolutionOp op, int conv) {
  const Node& node = p.node(conv);
  const Shape& input = p.graph.input_shape(node);
  const Precision precision = p.options.precision;
  if (p.shapes.is_stem(conv)) {
    return {op, stem_shape(p.choices.stem, node, input, p.shapes.batch), precision};
  }
  ConvolutionShape shape = convolution_shape(node, input, p.shapes.batch);
  if (op == ConvolutionOp::backward_data && leaves_even_pixels(p, conv)) {
    shape.stride = 1;
    shape.input_height = shape.output_height;
    shape.input_width = shape.output_width;
  }
  return {op, shape, precision};
}

FusedOp& add_convolution(Planner& p, int conv, ConvolutionOp op, ValueId x, ValueId y,
                         ValueId third) {
  const bool forward = op != ConvolutionOp::backward_data && op != ConvolutionOp::backward_weights;
  const Role third_role = op == ConvolutionOp::forward_residual ? Role::residual : Role::sums;
  const Operand of_x = op == ConvolutionOp::backward_data ? writes(Role::x, x) : reads(Role::x, x);
  FusedOp& added = p.add(
      FusedKind::convolution, forward ? Phase::forward : Phase::backward, p.node(conv).name, conv,
      {of_x, forward ? writes(Role::y, y) : reads(Role::y, y),
       third_role == Role::sums ? writes(Role::sums, third) : reads(third_role, third)});
  added.convolution = convolution_problem(p, op, conv);
  if (adds_bias(op)) added.bias = p.node(conv).parameters[1];
  if (op == ConvolutionOp::forward) {
    if (summed_norm(p, conv) >= 0) added.with_sweep = ConvolutionOp::forward_statistics;
    if (const auto found = epilogue(p, conv)) added.with_sweep = found->op;
  }
  if (op == ConvolutionOp::backward_weights) added.gradients = {p.node(conv).parameters[0]};
  // By the graph's own arithmetic: padded channels are no work.
  added.flops = p.shapes.forward_flops(conv);
  added.bytes +=
      static_cast<double>(added.convolution->shape.weight_elements() * p.shapes.element_size());
  return added;
}

void forward_convolution(Planner& p, int conv) {
  if (moments_pattern(p, conv) != nullptr) return;  // computed with its batch norm
  const Node& node = p.node(conv);
  const int norm = summed_norm(p, conv);
  const ValueId x = p.value(node.inputs[0]);
  if (node.shape.channels % 8 != 0) unsupported(node, "its channels are not a multiple of 8");
  const ValueId y = p.leave_value(conv);
  const auto sums = [&] {
    return p.leave(conv, Part::sums, 2 * node.shape.channels * float_bytes, Content::channel_sums);
  };
  if (norm >= 0 && p.shapes.is_stem(conv) && p.choices.own_stem_forward) {
    p.add(FusedKind::stem_forward, Phase::forward, node.name, conv,
          {reads(Role::x, x), writes(Role::y, y), writes(Role::sums, sums())})
        .flops = p.shapes.forward_flops(conv);
    return;
  }
  const auto fused = [&](ConvolutionOp op) {
    const std::string key = convolution_problem(p, op, conv).key();
    return p.chosen(p.choices.fused_sweeps, key, conv) != nullptr;
  };
  if (norm >= 0 && fused(ConvolutionOp::forward_statistics)) {
    add_convolution(p, conv, ConvolutionOp::forward_statistics, x, y, sums());
    return;
  }
  if (const auto found = epilogue(p, conv); found && fused(found->op)) {
    p.set_value(found->pattern->output(), y);
    const int residual = found->pattern->residual;
    add_convolution(p, conv, found->op, x, y, residual < 0 ? no_value : p.value(residual));
    return;
  }
  add_convolution(p, conv, ConvolutionOp::forward, x, y);
  if (norm >= 0) add_statistics(p, norm);
  if (const auto* pattern = p.patterns.activation(conv)) forward_activation(p, *pattern);
}

int mean_behind(const Planner& p, const NormPattern& pattern) {
  const int consumer = p.graph.sole_consumer(pattern.output);
  const bool is_mean = p.graph.is(consumer, OpKind::global_average_pool);
  return pattern.residual >= 0 && is_mean ? consumer : -1;
}

void forward_norm(Planner& p, const NormPattern& pattern) {
  if (pattern.pool >= 0) return forward_norm_pool(p, pattern);
  if (is_by_moments(p, pattern)) return forward_norm_by_moments(p, pattern);
  if (const int conv = moments_behind(p, pattern); conv >= 0) {
    return forward_norm_with_moments(p, pattern, conv);
  }
  const bool dual = pattern.residual_norm >= 0;
  ValueId residual = no_value;
  if (pattern.adds()) residual = p.value(dual ? pattern.residual_conv : pattern.residual);
  const int mean = mean_behind(p, pattern);
  const ValueId y = p.leave_value(mean >= 0 ? mean : pattern.output);
  const auto pack = 16 / p.shapes.element_size();
  ValueId mask = no_value;
  if (pattern.adds()) {
    mask = p.leave_for_backward(pattern.output, Part::mask,
                                p.shapes.extent(pattern.conv).elements() / pack, Content::mask);
  }
  std::string name = name_of(p.graph, pattern);
  if (mean >= 0) name += " + " + p.node(mean).name;
  FusedOp& op = p.add(
      FusedKind::normalise, Phase::forward, name, pattern.output,
      {reads(Role::x, p.value(pattern.conv)), reads(Role::residual, residual), writes(Role::y, y),
       writes(Role::mask, mask), reads(Role::sums, p.find(pattern.conv, Part::sums)),
       reads(Role::residual_sums, dual ? p.find(pattern.residual_conv, Part::sums) : no_value)});
  op.norm = pattern;
  op.relu = true;
  op.mean = mean;
}

void forward_average_pool(Planner& p, int pool) {
  if (p.find(pool, Part::value) != no_value) return;  // the sweep before it has done it
  p.add_forward(FusedKind::average_pool, pool);
}

void backward_average_pool(Planner& p, int pool) {
  const int input = p.node(pool).inputs[0];
  if (p.find(input, Part::value) == no_value) {  // only its mean was kept, and so is its gradient
    return p.add_gradient(input, {p.gradient_of(pool)});
  }
  p.add_backward(FusedKind::average_pool_gradient, pool);
}

IncomingGradient incoming_gradient(Planner& p, const NormPattern& pattern) {
  const auto [dy, dy_second] = p.gradients_of(pattern.output);
  if (const auto* even = p.gradient_in(pattern.output, GradientForm::even_pixels)) {
    return {Incoming::two_second_at_even_pixels, dy, even->value};
  }
  if (mean_behind(p, pattern) >= 0) return {Incoming::of_mean, dy, dy_second};
  return {dy_second == no_value ? Incoming::one : Incoming::two, dy, dy_second};
}

void add_norm_sums(Planner& p, const NormPattern& pattern, const IncomingGradient& incoming,
                   ValueId x, ValueId dz) {
  const bool dual = pattern.residual_norm >= 0;
  FusedOp& op = p.add(FusedKind::norm_gradient_sums, Phase::backward, name_of(p.graph, pattern),
                      pattern.output,
                      {reads(Role::dy, incoming.dy), reads(Role::dy_second, incoming.dy_second),
                       reads(Role::mask, p.find(pattern.output, Part::mask)), reads(Role::x, x),
                       reads(Role::residual_x, dual ? p.value(pattern.residual_conv) : no_value),
                       writes(Role::dz, dz)});
  op.norm = pattern;
  op.relu = true;
  op.incoming = incoming.form;
  op.gradients = p.node(pattern.norm).parameters;
  if (!dual) return;
  const std::vector<int>& others = p.node(pattern.residual_norm).parameters;
  op.gradients.insert(op.gradients.end(), others.begin(), others.end());
}

void backward_norm(Planner& p, const NormPattern& pattern) {
  if (pattern.pool >= 0) return backward_norm_pool(p, pattern);
  if (is_by_moments(p, pattern)) return backward_norm_by_moments(p, pattern);
  const bool dual = pattern.residual_norm >= 0;
  const bool masked = p.gradient_in(pattern.output, GradientForm::masked) != nullptr;
  const IncomingGradient incoming = incoming_gradient(p, pattern);
  const bool fused = fuses_backward(p, pattern);
  const ValueId x = p.value(pattern.conv);
  const ValueId residual_x = dual ? p.value(pattern.residual_conv) : no_value;
  ValueId dz = masked ? incoming.dy : no_value;
  if (pattern.adds()) dz = p.new_gradient(pattern.output, " before its ReLU");
  if (pattern.residual >= 0) p.add_gradient(pattern.residual, {dz});
  if (!masked) add_norm_sums(p, pattern, incoming, x, dz);
  if (fused) {
    if (dz == no_value) {
      p.add_gradient(pattern.conv, {incoming.dy, GradientForm::behind_norm_relu});
    } else {
      p.add_gradient(pattern.conv, {dz, GradientForm::behind_norm});
    }
    if (dual) p.add_gradient(pattern.residual_conv, {dz, GradientForm::behind_norm});
    return;
  }
  const ValueId dx = p.leave_gradient(pattern.conv, pattern.norm);
  const ValueId residual_dx =
      dual ? p.leave_gradient(pattern.residual_conv, pattern.residual_norm) : no_value;
  const bool apart = dz == no_value;
  FusedOp& op = p.add(FusedKind::norm_gradient_apply, Phase::backward, name_of(p.graph, pattern),
                      pattern.output,
                      {reads(Role::dz, dz), reads(Role::dy, apart ? incoming.dy : no_value),
                       reads(Role::dy_second, apart ? incoming.dy_second : no_value),
                       reads(Role::x, x), reads(Role::residual_x, residual_x), writes(Role::dx, dx),
                       writes(Role::residual_dx, residual_dx)});
  op.norm = pattern;
  op.relu = true;
  op.incoming = incoming.form;
}

bool fuses_backward(const Planner& p, int conv) {
  const ConvolutionProblem data = convolution_problem(p, ConvolutionOp::backward_data, conv);
  return p.node(conv).window.stride == 1 &&
         p.chosen(p.choices.fused_backward, data.key(), conv) != nullptr;
}

bool fuses_backward(const Planner& p, const NormPattern& pattern) {
  // The kernel recomputes the mask of a ReLU from one gradient alone, where channels do not grow.
  const bool one_gradient = p.gradient_count(pattern.output) == 1;
  const PointwiseShape shape = p.shapes.pointwise(pattern.conv);
  const bool widens = shape.output_channels > shape.input_channels;
  return fuses_backward(p, pattern.conv) && (pattern.adds() || (one_gradient && !widens)) &&
         (pattern.residual_norm < 0 || fuses_backward(p, pattern.residual_conv));
}

FusedOp& add_pointwise_backward(Planner& p, FusedKind kind, const std::string& name, int conv,
                                std::initializer_list<Operand> operands) {
  const ValueId partial_sums = p.new_value(
      p.node(conv).name + " partial sums of weights",
      pointwise_backward_scratch_bytes(p.shapes.pointwise(conv), p.device.multiprocessors));
  FusedOp& op = p.add(kind, Phase::backward, name, conv, operands);
  op.operands.push_back(scratch(partial_sums));
  op.gradients = {p.node(conv).parameters[0]};
  op.flops = 2 * p.shapes.forward_flops(conv);
  return op;
}

void backward_convolution(Planner& p, int conv) {
  const Node& node = p.node(conv);
  const int input = node.inputs[0];
  for (const GradientForm form : {GradientForm::behind_norm, GradientForm::behind_norm_relu}) {
    if (const auto* dz = p.gradient_in(conv, form)) return backward_pointwise(p, conv, *dz);
  }
  if (const auto* dz = p.gradient_in(conv, GradientForm::behind_pool)) {
    return backward_stem(p, conv, dz->value);
  }
  if (const NormPattern* pattern = moments_pattern(p, conv)) {
    return backward_convolution_by_moments(p, conv, *pattern);
  }
  const ValueId dy = p.gradient_of(conv);
  add_convolution(p, conv, ConvolutionOp::backward_weights, p.value(input), dy);
  if (p.shapes.is_stem(conv)) return mask_stem_gradient(p, conv);
  const ConvolutionProblem problem = convolution_problem(p, ConvolutionOp::backward_data, conv);
  const bool even = leaves_even_pixels(p, conv);
  const ValueId dx = p.new_value(
      "gradient of " + p.node(input).name + (even ? " at even pixels" : "") + " by " + node.name,
      problem.shape.input_elements() * p.shapes.element_size(), Content::numbers);
  p.add_gradient(input, {dx, even ? GradientForm::even_pixels : GradientForm::whole});
  add_convolution(p, conv, ConvolutionOp::backward_data, dx, dy);
}

void forward_plain_norm(Planner& p, int norm) {
  const int input = p.node(norm).inputs[0];
  const ValueId x = p.value(input);
  if (!p.graph.is(input, OpKind::conv) || p.graph.norm_behind(input) != norm) {
    add_statistics(p, norm);
  }
  p.add(FusedKind::normalise, Phase::forward, p.node(norm).name, norm,
        {reads(Role::x, x), writes(Role::y, p.leave_value(norm)),
         reads(Role::sums, p.find(input, Part::sums))})
      .norm = {.conv = input, .norm = norm, .output = norm};
}

void backward_plain_norm(Planner& p, int norm) {
  const int input = p.node(norm).inputs[0];
  const ValueId x = p.value(input), dy = p.gradient_of(norm);
  const ValueId dx = p.leave_gradient(input, norm);
  const NormPattern pattern{.conv = input, .norm = norm, .output = norm};
  FusedOp& sums = p.add(FusedKind::norm_gradient_sums, Phase::backward, p.node(norm).name, norm,
                        {reads(Role::dy, dy), reads(Role::x, x)});
  sums.norm = pattern;
  sums.gradients = p.node(norm).parameters;
  p.add(FusedKind::norm_gradient_apply, Phase::backward, p.node(norm).name, norm,
        {reads(Role::dy, dy), reads(Role::x, x), writes(Role::dx, dx)})
      .norm = pattern;
}

void forward_add(Planner& p, int add) {
  if (p.find(add, Part::value) != no_value) return;  // the product before it has added the other
  const std::vector<int>& inputs = p.node(add).inputs;
  const ValueId left = p.value(inputs[0]), right = p.value(inputs[1]);
  p.add(p.by_cudnn() ? FusedKind::cudnn_sum : FusedKind::add, Phase::forward, p.node(add).name, add,
        {reads(Role::x, left), reads(Role::residual, right), writes(Role::y, p.leave_value(add))});
}

void backward_add(Planner& p, int add) {
  p.gradient_of(add);
  for (const int input : p.node(add).inputs) p.add_gradient(input, p.gradients[add].front());
}

void forward_activation(Planner& p, const ActivationPattern& pattern) {
  const int output = pattern.output();
  // It may have been computed with its convolution.
  if (output != pattern.input && p.find(output, Part::value) != no_value) return;
  if (pattern.gelu >= 0) return forward_gelu(p, pattern);
  if (p.by_cudnn()) return forward_cudnn_activation(p, pattern);
  const ValueId x = p.value(pattern.input);
  const std::string name = name_of(p.graph, pattern);
  if (pattern.pool >= 0) {
    const Node& pool = p.node(pattern.pool);
    if (pool.window.kernel > widest_pool_window) unsupported(pool, "its window is too wide");
    const ValueId y = p.leave_value(output);
    const ValueId winner = p.leave_for_backward(
        output, Part::winner, p.shapes.bytes(output) / p.shapes.element_size(), Content::winners);
    FusedOp& op = p.add(FusedKind::activation_pool, Phase::forward, name, output,
                        {reads(Role::x, x), writes(Role::y, y), writes(Role::winner, winner)});
    op.bias = pattern.bias;
    op.relu = pattern.relu >= 0;
    return;
  }
  const ValueId residual = pattern.residual < 0 ? no_value : p.value(pattern.residual);
  // In place where nothing else reads what a product has left.
  const bool in_place = pattern.bias >= 0;
  if (in_place) p.set_value(output, x);
  FusedOp& op = p.add(FusedKind::activation, Phase::forward, name, output,
                      {in_place ? updates(Role::x, x) : reads(Role::x, x),
                       writes(Role::y, in_place ? no_value : p.leave_value(output)),
                       reads(Role::residual, residual)});
  op.bias = pattern.bias;
  op.relu = pattern.relu >= 0;
}

void backward_activation(Planner& p, const ActivationPattern& pattern) {
  if (pattern.gelu >= 0) return backward_gelu(p, pattern);
  if (p.by_cudnn()) return backward_cudnn_activation(p, pattern);
  if (pattern.pool >= 0) return backward_activation_pool(p, pattern);
  const int output = pattern.output();
  const bool masks = pattern.relu >= 0;
  const ValueId dy = p.gradient_of(output);
  if (p.gradients[output].front().summed_bias == output) return;
  FusedOp& op =
      p.add(FusedKind::activation_gradient, Phase::backward, name_of(p.graph, pattern), output,
            {reads(Role::dy, dy), reads(Role::y, masks ? p.value(output) : no_value),
             writes(Role::dx, masks ? p.leave_gradient(pattern.input, output) : no_value)});
  op.bias = pattern.bias;
  if (op.bias >= 0) op.gradients = {op.bias};
}

}  // namespace nearmetal::cuda
