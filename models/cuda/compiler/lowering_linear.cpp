#include <memory>

#include "models/cuda/compiler/lowering_state.h"

namespace nearmetal::cuda {

LogitsShape Lowering::logits_shape(int linear) const {
  const Shape& logits = graph_.node(linear).shape;
  return {options_.batch_size * logits.tokens(), static_cast<int>(logits.channels),
          static_cast<int>((logits.channels + 7) / 8 * 8)};
}

LinearShape Lowering::linear_shape(int linear) const {
  const Node& node = graph_.node(linear);
  const Shape& input = graph_.input_shape(node);
  const int64_t outputs = node.shape.channels;
  return {extent(linear).rows, node.op == OpKind::token_linear ? input.channels : input.elements(),
          outputs, graph_.are_logits(linear) ? logits_shape(linear).row_elements : outputs};
}

void Lowering::require_packs(const Node& linear, const LinearShape& shape) {
  if (shape.inputs % 8 != 0) unsupported(linear, "its inputs are not a multiple of 8");
  if (shape.row_elements % 8 != 0) unsupported(linear, "its outputs are not a multiple of 8");
}

Kernel& Lowering::emit_product(
    const std::string& name, Phase phase, const ProductShape& shape,
    std::vector<const Tensor*> operands,
    const std::function<void(const Product&, const void* bias, cudaStream_t)>& launch, int bias,
    const std::shared_ptr<const std::string>& algorithm) {
  const auto product = std::make_shared<std::unique_ptr<Product>>();
  const int64_t offset = bias < 0 ? 0 : layout_.offset(bias);
  return emit(
      name, phase, "cublasLt", std::move(operands),
      [=, precision = options_.precision, size = element_size(),
       &r = resources_](cudaStream_t stream) {
        const void* added = bias < 0 ? nullptr : r.parameters.operand(offset, size);
        if (*product == nullptr) {
          *product =
              std::make_unique<Product>(r.cublas, precision, shape, added, product_workspace);
          if (algorithm != nullptr && !(*product)->use(*algorithm)) {
            throw std::runtime_error("cuBLASLt no longer takes " + *algorithm + " for " + name);
          }
        }
        launch(**product, added, stream);
      });
}

Kernel& Lowering::emit_linear(
    int linear, const std::string& name, Phase phase, const LinearProblem& problem,
    std::vector<const Tensor*> operands,
    const std::function<void(const Product&, const void* bias, cudaStream_t)>& launch, int bias) {
  const Node& node = graph_.node(linear);
  // Classifiers are small, and plans from before products were timed have none of theirs.
  const bool is_timed = node.op == OpKind::token_linear && !graph_.are_logits(linear);
  const auto algorithm = is_timed ? std::make_shared<std::string>() : nullptr;
  Kernel& kernel =
      emit_product(name, phase, problem.product(), std::move(operands), launch, bias, algorithm);
  if (is_timed) kernel.linear = {problem, algorithm};
  count_product(kernel, node);
  return kernel;
}

void Lowering::count_product(Kernel& kernel, const Node& linear) const {
  kernel.flops = graph_.forward_flops(linear) * static_cast<double>(options_.batch_size);
  kernel.bytes +=
      static_cast<double>(graph_.parameters()[linear.parameters[0]].size * element_size());
}

void Lowering::forward_linear(int i) {
  const Node& linear = graph_.node(i);
  const LinearShape shape = linear_shape(i);
  require_packs(linear, shape);
  const bool logits = graph_.are_logits(i);
  const Tensor* x = value(linear.inputs[0]);
  // Logits stay fp32: the loss takes their exponentials.
  Tensor* y = tensor(shape.samples * shape.row_elements *
                     (logits ? static_cast<int64_t>(sizeof(float)) : element_size()));
  values_[i] = y;
  const int64_t weight = layout_.slices[linear.parameters[0]].offset;
  Kernel& kernel = emit_product(
      linear.name, Phase::forward, forward_product(shape, logits), {x, y},
      [=, size = element_size(), &r = resources_](const Product& product, const void*,
                                                  cudaStream_t stream) {
        product.launch({x->data, r.parameters.operand(weight, size), y->data}, r.workspace, stream);
      });
  count_product(kernel, linear);
  if (graph_.consumers(i).empty()) forward_output(i);
}

int Lowering::sum_behind(int linear) const {
  const int sum = graph_.sole_consumer(linear);
  if (by_cudnn() || patterns_.activation(linear) == nullptr || !graph_.is(sum, OpKind::add)) {
    return -1;
  }
  const std::vector<int>& added = graph_.node(sum).inputs;
  const int other = added[0] == linear ? added[1] : added[0];
  return values_[other] == nullptr ? -1 : sum;
}

void Lowering::forward_token_linear(int i) {
  const Node& linear = graph_.node(i);
  const LinearShape shape = linear_shape(i);
  require_packs(linear, shape);
  const int sum = sum_behind(i);
  const std::vector<int> added = sum < 0 ? std::vector<int>() : graph_.node(sum).inputs;
  const Tensor* residual = sum < 0 ? nullptr : value(added[0] == i ? added[1] : added[0]);
  const Tensor* x = value(linear.inputs[0]);
  const Tensor* y = tensor(value_bytes(i));
  values_[sum < 0 ? i : sum] = y;
  const int64_t weight = layout_.slices[linear.parameters[0]].offset;
  // A sweep behind it adds the bias before an activation.
  const int bias = patterns_.activation(i) == nullptr ? -1 : linear.parameters[1];
  const LinearProblem problem{LinearOp::forward, shape, options_.precision, bias >= 0,
                              residual != nullptr};
  emit_linear(
      i, sum < 0 ? linear.name : linear.name + " + " + graph_.node(sum).name, Phase::forward,
      problem, {x, y, residual},
      [=, size = element_size(), &r = resources_](const Product& product, const void* bias,
                                                  cudaStream_t stream) {
        product.launch({x->data, r.parameters.operand(weight, size), y->data, bias,
                        residual == nullptr ? nullptr : residual->data},
                       r.workspace, stream);
      },
      bias);
}

// The loss adds the bias of logits itself; where there is none, a sweep does.
void Lowering::forward_output(int i) {
  const Tensor* logits = step_.logits = value(i);
  const LogitsShape shape = logits_shape(i);
  const int64_t bias = layout_.offset(graph_.node(i).parameters[1]);
  emit(graph_.parameters()[graph_.node(i).parameters[1]].name, Phase::forward, "own sweep",
       {logits}, [=, &r = resources_](cudaStream_t stream) {
         // The row's padding lies over that of the bias's slice.
         launch_activation(Precision::fp32, logits->data, {r.parameters.values + bias, false},
                           logits->data, {shape.rows, shape.row_elements},
                           r.reduction.multiprocessors, stream);
       });
}

Lowering::Logits Lowering::logits_of(int loss, OpKind layer) {
  const int linear = graph_.node(loss).inputs[0];
  if (!graph_.is(linear, layer) || !graph_.are_logits(linear)) {
    unsupported(graph_.node(loss),
                std::string("it is not the only reader of a ") +
                    (layer == OpKind::token_linear ? "linear layer of tokens" : "linear layer"));
  }
  const LogitsShape shape = logits_shape(linear);
  const Tensor* gradient =
      options_.forward_only ? nullptr : tensor(shape.rows * shape.row_elements * element_size());
  gradients_[linear].push_back(gradient);
  return {shape, value(linear), gradient, layout_.offset(graph_.node(linear).parameters[1])};
}

void Lowering::forward_loss(int i) {
  const Logits logits = logits_of(i, OpKind::linear);
  emit(graph_.node(i).name, Phase::forward, "own", {logits.values, logits.gradient},
       [=, precision = options_.precision, first = micro_batch_ * options_.batch_size,
        &r = resources_](cudaStream_t stream) {
         launch_softmax_loss(precision, logits.shape,
                             static_cast<const float*>(logits.values->data),
                             r.parameters.values + logits.bias, r.labels + first,
                             &r.state->loss_scale, r.losses + first,
                             logits.gradient == nullptr ? nullptr : logits.gradient->data, stream);
       });
}

void Lowering::backward_linear(int i) {
  const Node& linear = graph_.node(i);
  const int input = linear.inputs[0];
  const Tensor* dy = gradient_of(i);
  const Tensor* x = value(input);
  Tensor* dx = tensor(value_bytes(input));
  gradients_[input].push_back(dx);
  const LinearShape shape = linear_shape(i);
  const int64_t size = element_size();
  const int64_t weight = layout_.slices[linear.parameters[0]].offset;
  const auto& r = resources_;
  if (graph_.are_logits(i)) {
    emit(linear.name, Phase::backward, "own", {dy},
         [=, logits = logits_shape(i), bias = layout_.slices[linear.parameters[1]].offset,
          precision = options_.precision, &r](cudaStream_t stream) {
           launch_bias_gradient(precision, logits, dy->data, r.parameters.vector_gradients + bias,
                                stream);
         });
  }
  emit_linear(i, linear.name, Phase::backward,
              {LinearOp::weight_gradient, shape, options_.precision}, {dy, x},
              [=, &r](const Product& product, const void*, cudaStream_t stream) {
                product.launch({dy->data, x->data, r.parameters.gradient(weight, size)},
                               r.workspace, stream);
              })
      .gradient_of = linear.parameters[0];
  emit_linear(i, linear.name, Phase::backward,
              {LinearOp::input_gradient, shape, options_.precision}, {dy, dx},
              [=, &r](const Product& product, const void*, cudaStream_t stream) {
                product.launch({dy->data, r.parameters.operand(weight, size), dx->data},
                               r.workspace, stream);
              });
}

}  // namespace nearmetal::cuda
