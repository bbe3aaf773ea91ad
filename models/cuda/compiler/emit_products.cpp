#include "models/cuda/compiler/emit_products.h"

#include <array>
#include <cmath>
#include <memory>
#include <stdexcept>

#include "models/cuda/compiler/attention_products.h"
#include "models/cuda/kernels/attention/attention.h"
#include "models/cuda/libraries/linear.h"

namespace nearmetal::cuda::emitters {
namespace {

using enum Role;

float score_factor(const AttentionExtent& extent) {
  return 1 / std::sqrt(static_cast<float>(extent.head_features));
}

SoftmaxShape softmax_shape(const AttentionExtent& extent) {
  return {extent.rows(), static_cast<int>(extent.tokens),
          static_cast<int>(score_row_elements(extent))};
}

// A product is made at its first launch, which is not in a captured graph: it needs the handle.
// `bias`: what is added to each row, whose address every launch gets.
using LaunchProduct = std::function<void(const Product&, const void* bias, cudaStream_t)>;
Launch product_launch(const FusedOp& op, const Emission& e, const ProductShape& shape,
                      const std::shared_ptr<const std::string>& algorithm,
                      const LaunchProduct& launch) {
  const auto product = std::make_shared<std::unique_ptr<Product>>();
  return [=, name = op.name, precision = e.options.precision, bias = ParameterPlace(op.bias, e),
          &r = e.resources](cudaStream_t stream) {
    if (*product == nullptr) {
      *product =
          std::make_unique<Product>(r.cublas, precision, shape, bias.operand(), product_workspace);
      if (algorithm != nullptr && !(*product)->use(*algorithm)) {
        throw std::runtime_error("cuBLASLt no longer takes " + *algorithm + " for " + name);
      }
    }
    launch(**product, bias.operand(), stream);
  };
}

Launch emit_attention(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), problem = *op.attention](cudaStream_t stream) {
    launch_attention(problem.precision, problem.extent, {at[packed], at[y], at.as<float>(log_sums)},
                     stream);
  };
}

Launch emit_attention_gradient(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), problem = *op.attention](cudaStream_t stream) {
    launch_attention_backward(problem.precision, problem.extent,
                              {at[packed], at[y], at[dy], at.as<const float>(log_sums),
                               at.as<float>(dots), at[packed_gradient]},
                              stream);
  };
}

Launch emit_attention_product(const FusedOp& op, const Emission& e) {
  const AttentionProduct& product = *op.product;
  const AttentionCalls calls = attention_calls(e.shapes.attention(op.node), product);
  const int64_t size = e.shapes.element_size();
  const int64_t result_size = product.fp32_result ? 4 : size;
  const auto launch = [=, at = Operands(op, e), &r = e.resources](
                          const Product& of_call, const void*, cudaStream_t stream) {
    for (int64_t call = 0; call < calls.calls; ++call) {
      const auto matrix = [&](Role role, const HeadMatrices& m, int64_t step, int64_t element) {
        return at.as<char>(role) + (m.first + call * step) * element;
      };
      of_call.launch(
          {matrix(a, product.a, calls.a_step, size), matrix(b, product.b, calls.b_step, size),
           matrix(d, product.d, calls.d_step, result_size)},
          r.workspace, stream);
    }
  };
  return product_launch(op, e, calls.shape, nullptr, launch);
}

Launch emit_softmax(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision,
          extent = e.shapes.attention(op.node)](cudaStream_t stream) {
    void* result = at.tensor(y) == nullptr ? at[x] : at[y];
    launch_softmax(precision, softmax_shape(extent), at.as<const float>(x), score_factor(extent),
                   result, stream);
  };
}

Launch emit_softmax_gradient(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision,
          extent = e.shapes.attention(op.node)](cudaStream_t stream) {
    void* result = at.tensor(dx) == nullptr ? at[dy] : at[dx];
    launch_softmax_backward(precision, softmax_shape(extent), at[y], at.as<const float>(dy),
                            score_factor(extent), result, stream);
  };
}

constexpr std::array product_rows = {
    Emitter{FusedKind::attention, "attention", "own", emit_attention},
    Emitter{FusedKind::attention_gradient, "attention_gradient", "own", emit_attention_gradient},
    Emitter{FusedKind::attention_product, "attention_product", "cublasLt", emit_attention_product},
    Emitter{FusedKind::softmax, "softmax", "own sweep", emit_softmax},
    Emitter{FusedKind::softmax_gradient, "softmax_gradient", "own sweep", emit_softmax_gradient},
};

}  // namespace

std::span<const Emitter> product_emitters() { return product_rows; }

Launch emit_linear(const FusedOp& op, const Emission& e,
                   const std::shared_ptr<const std::string>& algorithm) {
  const LinearOp which = op.linear->op;
  // Logits stay fp32.
  const bool is_logits = which == LinearOp::forward && e.graph.are_logits(op.node);
  const ProductShape shape =
      is_logits ? forward_product(op.linear->shape, true) : op.linear->product();
  const auto launch =
      [=, at = Operands(op, e), weight = ParameterPlace(e.graph.node(op.node).parameters[0], e),
       &r = e.resources](const Product& product, const void* bias, cudaStream_t stream) {
        const auto operands = [&]() -> ProductOperands {
          switch (which) {
            case LinearOp::forward:
              return {at[x], weight.operand(), at[y], bias, at[residual]};
            case LinearOp::weight_gradient:
              return {at[dy], at[x], weight.gradient()};
            case LinearOp::input_gradient:
              return {at[dy], weight.operand(), at[dx]};
          }
          throw std::logic_error("unnamed LinearOp");
        }();
        product.launch(operands, r.workspace, stream);
      };
  return product_launch(op, e, shape, algorithm, launch);
}

}  // namespace nearmetal::cuda::emitters
