#include "models/cuda/compiler/lowering_state.h"
#include "models/cuda/kernels/pointwise/backward.h"
#include "models/cuda/kernels/pointwise/second_moments.h"

namespace nearmetal::cuda {

// A sum must follow, as the kernel of the convolution adds the residual; and the convolution must
// read a batch norm's ReLU, as the sweeps there take the moments and add their term.
bool Lowering::by_moments(const NormPattern& pattern) const {
  return pattern.adds() && !options_.forward_only && mean_behind(pattern) < 0 &&
         !graph_.node(pattern.conv).has_bias() && summed_norm(pattern.conv) >= 0 &&
         sole_input_norm(pattern.conv) != nullptr &&
         choices_.input_moments.contains(problem(ConvolutionOp::forward, pattern.conv).key());
}

const NormPattern* Lowering::moments_pattern(int conv) const {
  const int norm = graph_.norm_behind(conv);
  if (norm < 0) return nullptr;
  const int sum = graph_.sole_consumer(norm);
  const int relu = sum < 0 ? -1 : graph_.sole_consumer(sum);
  const NormPattern* pattern = relu < 0 ? nullptr : patterns_.norm(relu);
  const bool normalised_here = pattern != nullptr && pattern->conv == conv;
  return normalised_here && by_moments(*pattern) ? pattern : nullptr;
}

MomentsShape Lowering::moments_shape(int conv) const {
  const Extent extent = this->extent(conv);
  return {extent.rows, static_cast<int>(graph_.input_shape(graph_.node(conv)).channels),
          extent.channels};
}

const NormPattern* Lowering::sole_input_norm(int conv) const {
  const int input = graph_.node(conv).inputs[0];
  const NormPattern* pattern = patterns_.norm(input);
  const bool fits = pattern != nullptr && !pattern->adds() && pattern->pool < 0 &&
                    graph_.sole_consumer(input) == conv;
  return fits ? pattern : nullptr;
}

int Lowering::moments_behind(const NormPattern& pattern) const {
  const int conv = graph_.sole_consumer(pattern.output);
  return graph_.is(conv, OpKind::conv) && moments_pattern(conv) != nullptr ? conv : -1;
}

void Lowering::forward_norm_with_moments(const NormPattern& pattern, int conv) {
  const Tensor *y = values_[pattern.conv], *sums = sums_[pattern.conv];
  const Tensor* z = tensor(value_bytes(pattern.output));
  values_[pattern.output] = z;
  const MomentsShape shape = moments_shape(conv);
  const auto fp32 = static_cast<int64_t>(sizeof(float));
  const auto& r = resources_;
  const Tensor* mean = tensor(shape.inputs * fp32);
  const Tensor* central = tensor(int64_t{shape.inputs} * shape.inputs * fp32);
  moments_[conv].mean = mean;
  moments_[conv].central = central;
  const Tensor* partial_sums =
      tensor(second_moments_scratch_bytes(shape, r.reduction.multiprocessors));
  Kernel& kernel = emit(
      name_of(graph_, pattern), Phase::forward, "own sweep with second moments", {y, sums, z},
      [=, precision = options_.precision, norm = norm_input(pattern.conv, pattern.norm),
       &r](cudaStream_t stream) {
        SecondMomentsOperands operands;
        operands.y = y->data;
        operands.norm = norm();
        operands.z = z->data;
        operands.moments = {static_cast<float*>(mean->data), static_cast<float*>(central->data)};
        operands.partial_sums = static_cast<float*>(partial_sums->data);
        launch_second_moments(precision, operands, shape, r.reduction.multiprocessors, stream);
      });
  // In L2: no part of the bytes.
  for (const Tensor* kept : {mean, central, partial_sums}) kernel.operands.push_back(kept);
}

void Lowering::statistics_by_moments(const NormPattern& pattern) {
  const Node& node = graph_.node(pattern.conv);
  const MomentsShape shape = moments_shape(pattern.conv);
  const auto fp32 = static_cast<int64_t>(sizeof(float));
  const int64_t weights = int64_t{shape.outputs} * shape.inputs;
  Moments& moments = moments_[pattern.conv];
  moments.product = tensor(weights * fp32);
  moments.scaled_weights = tensor(weights * element_size());
  const auto& r = resources_;
  const int64_t offset = layout_.slices[node.parameters[0]].offset;
  const auto operands = [=, norm = pattern.norm, slot = norm_slot(), size = element_size(), &r] {
    MomentsNormOperands operands;
    operands.moments = {static_cast<float*>(moments.mean->data),
                        static_cast<float*>(moments.central->data)};
    operands.weights = r.parameters.operand(offset, size);
    operands.state = r.norm(slot, norm);
    operands.product = static_cast<float*>(moments.product->data);
    operands.scaled_weights = moments.scaled_weights->data;
    return operands;
  };
  emit(name_of(graph_, pattern), Phase::forward, "own statistics by moments",
       {moments.mean, moments.central, moments.product, moments.scaled_weights},
       [=, precision = options_.precision](cudaStream_t stream) {
         launch_moments_statistics(precision, operands(), shape, stream);
       });
}

void Lowering::forward_norm_by_moments(const NormPattern& pattern) {
  statistics_by_moments(pattern);
  const Node& node = graph_.node(pattern.conv);
  const Tensor* z = value(node.inputs[0]);
  const MomentsShape shape = moments_shape(pattern.conv);
  const auto& r = resources_;
  const int64_t offset = layout_.slices[node.parameters[0]].offset;
  Tensor* y = tensor(value_bytes(pattern.output));
  values_[pattern.output] = y;
  const bool dual = pattern.residual_norm >= 0;
  const Tensor* residual = value(dual ? pattern.residual_conv : pattern.residual);
  std::function<NormInput()> residual_norm;
  const Tensor* residual_sums = dual ? sums_[pattern.residual_conv] : nullptr;
  if (dual) residual_norm = norm_input(pattern.residual_conv, pattern.residual_norm);
  const Extent extent = this->extent(pattern.conv);
  const Tensor* mask = tensor(extent.elements() * element_size() / 16);
  masks_[pattern.output] = mask;
  emit(node.name + " + " + name_of(graph_, pattern), Phase::forward, "own",
       {z, residual, residual_sums, y, mask},
       [=, precision = options_.precision, norm = pattern.norm, slot = norm_slot(),
        size = element_size(), &r](cudaStream_t stream) {
         const NormInput other = residual_norm ? residual_norm() : NormInput{};
         PointwiseForwardOperands operands;
         operands.x = z->data;
         operands.weights = r.parameters.operand(offset, size);
         operands.state = r.norm(slot, norm);
         operands.residual = residual->data;
         if (residual_norm) operands.residual_norm = &other;
         operands.y = y->data;
         operands.mask = static_cast<uint8_t*>(mask->data);
         launch_pointwise_forward(precision, operands, shape.rows, shape.inputs,
                                  r.reduction.multiprocessors, stream);
       })
      .flops = graph_.forward_flops(node) * static_cast<double>(options_.batch_size);
}

int Lowering::joined_end(int conv) const {
  const int input = graph_.node(conv).inputs[0];
  const NormPattern* end = patterns_.norm(input);
  const bool one_other = graph_.consumers(input).size() == 2 && gradients_[input].size() == 1;
  const bool joins = end != nullptr && end->output == input && by_moments(*end) && one_other &&
                     pointwise_backward_joins(pointwise_shape(conv));
  return joins ? end->norm : -1;
}

void Lowering::sums_of_residual(const NormPattern& pattern, const Tensor* dz) {
  const Tensor* x = values_[pattern.residual_conv];
  emit(graph_.node(pattern.residual_norm).name, Phase::backward, "own sums sweep", {dz, x},
       [=, extent = extent(pattern.conv), slot = norm_slot(), norm = pattern.residual_norm,
        precision = options_.precision, &r = resources_](cudaStream_t stream) {
         NormBackwardOperands operands;
         operands.count = extent.rows;
         operands.relu = false;
         operands.dy = dz->data;
         operands.x = x->data;
         operands.state = r.norm(slot, norm);
         launch_norm_backward_sums(precision, operands, extent, r.reduction, stream);
       });
}

void Lowering::backward_norm_by_moments(const NormPattern& pattern) {
  const bool joined = joined_.contains(pattern.output);
  const Tensor* dz = joined ? gradient_of(pattern.output) : tensor(value_bytes(pattern.output));
  if (!joined) {
    NormTensors tensors = incoming_gradient(pattern);
    tensors.dz = dz;
    emit_norm_sums(pattern, tensors);
  }
  gradients_[pattern.conv].push_back(dz);
  if (pattern.residual_norm < 0) {
    gradients_[pattern.residual].push_back(dz);
    return;
  }
  if (joined) sums_of_residual(pattern, dz);
  if (fuses_backward(pattern.residual_conv)) {
    pending_[pattern.residual_conv] = {pattern.residual_norm, dz, false};
    return;
  }
  const Tensor* residual_x = values_[pattern.residual_conv];
  Tensor* residual_dx = tensor(value_bytes(pattern.residual_conv));
  gradients_[pattern.residual_conv].push_back(residual_dx);
  emit(graph_.node(pattern.residual_norm).name, Phase::backward, "own apply sweep",
       {dz, residual_x, residual_dx},
       [=, extent = extent(pattern.conv), slot = norm_slot(), precision = options_.precision,
        &r = resources_](cudaStream_t stream) {
         NormBackwardOperands operands;
         operands.count = extent.rows;
         operands.dy = operands.dz = dz->data;
         operands.x = residual_x->data;
         operands.state = r.norm(slot, pattern.residual_norm);
         operands.dx = residual_dx->data;
         launch_norm_backward_apply(precision, operands, extent, r.reduction.multiprocessors,
                                    stream);
       });
}

void Lowering::backward_both_products(int i, const Tensor* z, const Tensor* dz,
                                      const Tensor* scaled_weights, const Tensor* dx) {
  const Node& node = graph_.node(i);
  const MomentsShape sizes = moments_shape(i);
  const PointwiseShape shape{sizes.rows, sizes.outputs, sizes.inputs};
  const auto& r = resources_;
  Tensor* partial_sums =
      tensor(pointwise_backward_scratch_bytes(shape, r.reduction.multiprocessors));
  const int64_t offset = layout_.slices[node.parameters[0]].offset;
  Kernel& kernel = emit(
      node.name, Phase::backward, "own", {dz, z, dx, scaled_weights},
      [=, precision = options_.precision, size = element_size(), &r](cudaStream_t stream) {
        PointwiseBackwardOperands operands;
        operands.dz = dz->data;
        operands.x = z->data;
        operands.weights = scaled_weights->data;
        operands.dx = dx->data;
        operands.weight_gradient = r.parameters.gradient(offset, size);
        operands.partial_sums = static_cast<float*>(partial_sums->data);
        launch_pointwise_backward(precision, operands, shape, r.reduction.multiprocessors, stream);
      });
  kernel.operands.push_back(partial_sums);  // stays in L2: no part of the bytes
  kernel.gradient_of = node.parameters[0];
  kernel.flops = 2 * graph_.forward_flops(node) * static_cast<double>(options_.batch_size);
}

void Lowering::backward_convolution_by_moments(int i, const NormPattern& pattern) {
  const Node& node = graph_.node(i);
  const int input = node.inputs[0];
  const Tensor *z = value(input), *dz = gradient_of(i);
  const Moments moments = moments_[i];
  const MomentsShape shape = moments_shape(i);
  Tensor* dx = tensor(value_bytes(input));
  gradients_[input].push_back(dx);
  const bool fused =
      choices_.input_moments.at(problem(ConvolutionOp::forward, i).key()) == MomentsProducts::own;
  if (fused) {
    backward_both_products(i, z, dz, moments.scaled_weights, dx);
  } else {
    emit_convolution(i, ConvolutionOp::backward_weights, Phase::backward, z, dz);
  }
  const auto fp32 = static_cast<int64_t>(sizeof(float));
  const Tensor* matrix = tensor(int64_t{shape.inputs} * shape.inputs * fp32);
  const Tensor* vector = tensor(shape.inputs * fp32);
  const Tensor* largest = tensor(sizeof(unsigned));
  const int64_t offset = layout_.slices[node.parameters[0]].offset;
  const auto& r = resources_;
  const auto operands = [=, norm = pattern.norm, slot = norm_slot(), size = element_size(), &r] {
    MomentsGradientOperands operands;
    operands.mean = static_cast<const float*>(moments.mean->data);
    operands.weights = r.parameters.operand(offset, size);
    operands.state = r.norm(slot, norm);
    operands.product = static_cast<const float*>(moments.product->data);
    operands.weight_gradient = r.parameters.gradient(offset, size);
    operands.matrix = static_cast<float*>(matrix->data);
    operands.vector = static_cast<float*>(vector->data);
    operands.largest = static_cast<unsigned*>(largest->data);
    return operands;
  };
  const Precision precision = options_.precision;
  const std::string name = graph_.node(pattern.norm).name + " + " + node.name;
  emit(name, Phase::backward, "own gradient by moments",
       {moments.mean, moments.product, matrix, vector, largest},
       [=](cudaStream_t stream) { launch_moments_gradient(precision, operands(), shape, stream); })
      .gradient_of = node.parameters[0];
  if (!fused) {
    emit_convolution(i, ConvolutionOp::backward_data, Phase::backward, dx, dz).weights =
        moments.scaled_weights;
    step_.kernels.back().operands.push_back(moments.scaled_weights);
  }
  const NormPattern& before = *sole_input_norm(i);
  const Tensor* x = values_[before.conv];
  emit(name_of(graph_, before), Phase::backward, "own sums sweep with term by moments",
       {x, dx, dx, matrix, vector, largest},  // dx is read and written
       [=, norm = before.norm, slot = norm_slot(), &r](cudaStream_t stream) {
         const MomentsGradientOperands gradient = operands();
         launch_moments_sums(precision,
                             {x->data, r.norm(slot, norm), gradient.matrix, gradient.vector,
                              gradient.largest, dx->data},
                             shape.rows, shape.inputs, r.reduction, stream);
       });
}

}  // namespace nearmetal::cuda
