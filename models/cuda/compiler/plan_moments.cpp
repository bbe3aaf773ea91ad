#include "models/cuda/compiler/plan_moments.h"

#include "models/cuda/compiler/plan_images.h"

namespace nearmetal::cuda {
namespace {

// The batch norm with ReLU, and nothing else, whose output this convolution alone reads, or null.
const NormPattern* sole_input_norm(const Planner& p, int conv) {
  const int input = p.node(conv).inputs[0];
  const NormPattern* pattern = p.patterns.norm(input);
  const bool fits = pattern != nullptr && !pattern->adds() && pattern->pool < 0 &&
                    p.graph.sole_consumer(input) == conv;
  return fits ? pattern : nullptr;
}

const MomentsChoices::value_type* moments_choice(const Planner& p, int conv) {
  const std::string key = convolution_problem(p, ConvolutionOp::forward, conv).key();
  return p.chosen(p.choices.input_moments, key, conv);
}

// The sums of a normalised residual alone.
void add_sums_of_residual(Planner& p, const NormPattern& pattern, ValueId dz) {
  const int norm = pattern.residual_norm;
  FusedOp& op = p.add(FusedKind::norm_gradient_sums, Phase::backward, p.node(norm).name, norm,
                      {reads(Role::dy, dz), reads(Role::x, p.value(pattern.residual_conv))});
  op.norm = {.conv = pattern.residual_conv, .norm = norm, .output = norm};
  op.gradients = p.node(norm).parameters;
}

}  // namespace

// A sum must follow, as the kernel of the convolution adds the residual; and the convolution must
// read a batch norm's ReLU, as the sweeps there take the moments and add their term.
bool is_by_moments(const Planner& p, const NormPattern& pattern) {
  return pattern.adds() && !p.options.forward_only && mean_behind(p, pattern) < 0 &&
         !p.node(pattern.conv).has_bias() && summed_norm(p, pattern.conv) >= 0 &&
         sole_input_norm(p, pattern.conv) != nullptr && moments_choice(p, pattern.conv) != nullptr;
}

const NormPattern* moments_pattern(const Planner& p, int conv) {
  const int norm = p.graph.norm_behind(conv);
  if (norm < 0) return nullptr;
  const int sum = p.graph.sole_consumer(norm);
  const int relu = sum < 0 ? -1 : p.graph.sole_consumer(sum);
  const NormPattern* pattern = relu < 0 ? nullptr : p.patterns.norm(relu);
  const bool normalised_here = pattern != nullptr && pattern->conv == conv;
  return normalised_here && is_by_moments(p, *pattern) ? pattern : nullptr;
}

int moments_behind(const Planner& p, const NormPattern& pattern) {
  const int conv = p.graph.sole_consumer(pattern.output);
  return p.graph.is(conv, OpKind::conv) && moments_pattern(p, conv) != nullptr ? conv : -1;
}

void forward_norm_with_moments(Planner& p, const NormPattern& pattern, int conv) {
  const ValueId z = p.leave_value(pattern.output);
  const MomentsShape shape = p.shapes.moments(conv);
  const ValueId mean = p.leave(conv, Part::mean, shape.inputs * float_bytes);
  const ValueId central =
      p.leave(conv, Part::central, int64_t{shape.inputs} * shape.inputs * float_bytes);
  const ValueId partial_sums =
      p.new_value(p.node(conv).name + " partial sums of moments",
                  second_moments_scratch_bytes(shape, p.device.multiprocessors));
  p.add(FusedKind::second_moments, Phase::forward, name_of(p.graph, pattern), conv,
        {reads(Role::y, p.value(pattern.conv)), reads(Role::sums, p.find(pattern.conv, Part::sums)),
         writes(Role::x, z), in_cache(writes(Role::mean, mean)),
         in_cache(writes(Role::central, central)), scratch(partial_sums)})
      .norm = pattern;
}

void forward_norm_by_moments(Planner& p, const NormPattern& pattern) {
  const int conv = pattern.conv;
  const MomentsShape shape = p.shapes.moments(conv);
  const int64_t weights = int64_t{shape.outputs} * shape.inputs;
  const ValueId product = p.leave(conv, Part::product, weights * float_bytes);
  const ValueId scaled_weights =
      p.leave(conv, Part::scaled_weights, weights * p.shapes.element_size());
  p.add(FusedKind::moments_statistics, Phase::forward, name_of(p.graph, pattern), conv,
        {reads(Role::mean, p.find(conv, Part::mean)),
         reads(Role::central, p.find(conv, Part::central)), writes(Role::product, product),
         writes(Role::weights, scaled_weights)})
      .norm = pattern;
  const ValueId z = p.value(p.node(conv).inputs[0]);
  const ValueId y = p.leave_value(pattern.output);
  const bool dual = pattern.residual_norm >= 0;
  const ValueId mask =
      p.leave(pattern.output, Part::mask,
              p.shapes.extent(conv).elements() * p.shapes.element_size() / 16, Content::mask);
  FusedOp& op = p.add(
      FusedKind::pointwise_forward, Phase::forward,
      p.node(conv).name + " + " + name_of(p.graph, pattern), conv,
      {reads(Role::x, z),
       reads(Role::residual, p.value(dual ? pattern.residual_conv : pattern.residual)),
       reads(Role::residual_sums, dual ? p.find(pattern.residual_conv, Part::sums) : no_value),
       writes(Role::y, y), writes(Role::mask, mask)});
  op.norm = pattern;
  op.flops = p.shapes.forward_flops(conv);
}

void backward_norm_by_moments(Planner& p, const NormPattern& pattern) {
  const Gradient* joined = p.gradient_in(pattern.output, GradientForm::masked);
  ValueId dz = joined != nullptr ? joined->value : no_value;
  if (joined == nullptr) {
    dz = p.new_gradient(pattern.output, " before its ReLU");
    const IncomingGradient incoming = incoming_gradient(p, pattern);
    add_norm_sums(p, pattern, incoming, no_value, dz);
  }
  p.add_gradient(pattern.conv, {dz});
  const int residual = pattern.residual_conv, norm = pattern.residual_norm;
  if (norm < 0) return p.add_gradient(pattern.residual, {dz});
  if (joined != nullptr) add_sums_of_residual(p, pattern, dz);
  if (fuses_backward(p, residual)) {
    return p.add_gradient(residual, {dz, GradientForm::behind_norm});
  }
  const ValueId residual_dx = p.leave_gradient(residual, norm);
  p.add(FusedKind::norm_gradient_apply, Phase::backward, p.node(norm).name, norm,
        {reads(Role::dz, dz), reads(Role::x, p.value(residual)), writes(Role::dx, residual_dx)})
      .norm = {.conv = residual, .norm = norm, .output = norm};
}

void backward_convolution_by_moments(Planner& p, int conv, const NormPattern& pattern) {
  const Node& node = p.node(conv);
  const int input = node.inputs[0];
  const ValueId z = p.value(input), dz = p.gradient_of(conv);
  const ValueId scaled_weights = p.find(conv, Part::scaled_weights);
  const MomentsShape shape = p.shapes.moments(conv);
  const ValueId dx = p.new_gradient(input, " before its ReLU");
  p.add_gradient(input, {dx, GradientForm::masked});
  const bool own = moments_choice(p, conv)->second == MomentsProducts::own;
  if (own) {
    add_pointwise_backward(p, FusedKind::pointwise_products, node.name, conv,
                           {reads(Role::dz, dz), reads(Role::x, z), writes(Role::dx, dx),
                            reads(Role::weights, scaled_weights)});
  } else {
    add_convolution(p, conv, ConvolutionOp::backward_weights, z, dz);
  }
  const ValueId matrix = p.new_value(node.name + " gradient matrix",
                                     int64_t{shape.inputs} * shape.inputs * float_bytes);
  const ValueId vector = p.new_value(node.name + " gradient vector", shape.inputs * float_bytes);
  const ValueId largest = p.new_value(node.name + " largest of the matrix", sizeof(unsigned));
  FusedOp& gradient =
      p.add(FusedKind::moments_gradient, Phase::backward,
            p.node(pattern.norm).name + " + " + node.name, conv,
            {reads(Role::mean, p.find(conv, Part::mean)),
             reads(Role::product, p.find(conv, Part::product)), writes(Role::matrix, matrix),
             writes(Role::vector, vector), writes(Role::largest, largest)});
  gradient.norm = pattern;
  gradient.gradients = {node.parameters[0], p.node(pattern.norm).parameters[0]};
  if (!own) {
    add_convolution(p, conv, ConvolutionOp::backward_data, dx, dz)
        .operands.push_back(in_cache(reads(Role::weights, scaled_weights)));
  }
  const NormPattern& before = *sole_input_norm(p, conv);
  FusedOp& sums = p.add(
      FusedKind::moments_sums, Phase::backward, name_of(p.graph, before), conv,
      {reads(Role::x, p.value(before.conv)), updates(Role::dz, dx), reads(Role::matrix, matrix),
       reads(Role::vector, vector), reads(Role::largest, largest)});
  sums.norm = before;
  sums.gradients = p.node(before.norm).parameters;
}

}  // namespace nearmetal::cuda
