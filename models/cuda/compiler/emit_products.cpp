// The emitters of matrix products, of attention, and of what lies between its products.
#include <array>
#include <cmath>
#include <stdexcept>

#include "models/cuda/compiler/emission.h"
#include "models/cuda/kernels/softmax.h"
#include "models/cuda/libraries/linear.h"

namespace nearmetal::cuda::emitters {
namespace {

using enum Role;

// A product is made at its first launch, which is not in a captured graph: it needs the handle.
// `launch` gets what is added to each row.
template <class LaunchProduct>
Launch product_launch(const Bound& bound, const ProductShape& shape,
                      const std::shared_ptr<const std::string>& algorithm, LaunchProduct launch) {
  const auto product = std::make_shared<std::unique_ptr<Product>>();
  return [=](cudaStream_t stream) {
    const void* bias = bound.operand(bound.op.bias);
    if (*product == nullptr) {
      *product = std::make_unique<Product>(bound.resources.cublas, bound.precision(), shape, bias,
                                           product_workspace);
      if (algorithm != nullptr && !(*product)->use(*algorithm)) {
        throw std::runtime_error("cuBLASLt no longer takes " + *algorithm + " for " +
                                 bound.op.name);
      }
    }
    launch(**product, bias, stream);
  };
}

ProductOperands linear_operands(const Bound& b, const void* bias) {
  switch (b.op.linear->op) {
    case LinearOp::forward:
      return {b[x], b.operand(b.parameter()), b[y], bias, b[residual]};
    case LinearOp::weight_gradient:
      return {b[dy], b[x], b.matrix_gradient(b.parameter())};
    case LinearOp::input_gradient:
      return {b[dy], b.operand(b.parameter()), b[dx]};
  }
  throw std::logic_error("unnamed LinearOp");
}

// cuBLASLt takes one step between its matrices: either the heads of a sample are one call, or the
// samples of a head, whichever needs fewer calls.
Launch attention_product(const Bound& b) {
  const AttentionExtent extent = b.shapes.attention(b.op.node);
  const auto& [a, second, d, rows, columns, inner, a_transposed, b_transposed, fp32_result] =
      *b.op.product;
  const bool heads_at_once = extent.heads >= extent.batch;
  const auto inner_step = [=](const HeadMatrices& m) {
    return heads_at_once ? m.head_step : m.sample_step;
  };
  ProductShape shape{rows,       columns,         inner,      a_transposed, b_transposed,
                     a.row_step, second.row_step, d.row_step, fp32_result};
  shape.alignment_bytes = 16;  // heads are a multiple of 8 elements apart
  shape.count = heads_at_once ? extent.heads : extent.batch;
  shape.a_step = inner_step(a);
  shape.b_step = inner_step(second);
  shape.d_step = inner_step(d);
  const int64_t calls = heads_at_once ? extent.batch : extent.heads;
  const int64_t size = b.shapes.element_size(), result_size = fp32_result ? 4 : size;
  return product_launch(
      b, shape, nullptr,
      [=, of = *b.op.product](const Product& made, const void*, cudaStream_t stream) {
        for (int64_t call = 0; call < calls; ++call) {
          const auto matrix = [&](Role role, const HeadMatrices& m, int64_t element) {
            const int64_t step = heads_at_once ? m.sample_step : m.head_step;
            return b.as<char>(role) + (m.first + call * step) * element;
          };
          made.launch(
              {matrix(x, of.a, size), matrix(residual, of.b, size), matrix(y, of.d, result_size)},
              b.resources.workspace, stream);
        }
      });
}

float score_factor(const AttentionExtent& extent) {
  return 1 / std::sqrt(static_cast<float>(extent.head_features));
}

SoftmaxShape softmax_shape(const AttentionExtent& extent) {
  return {extent.rows(), static_cast<int>(extent.tokens),
          static_cast<int>(score_row_elements(extent))};
}

void softmax(const Bound& b, cudaStream_t stream) {
  const AttentionExtent extent = b.shapes.attention(b.op.node);
  launch_softmax(b.precision(), softmax_shape(extent), b.as<const float>(x), score_factor(extent),
                 b.either(y, x), stream);
}

void softmax_gradient(const Bound& b, cudaStream_t stream) {
  const AttentionExtent extent = b.shapes.attention(b.op.node);
  launch_softmax_backward(b.precision(), softmax_shape(extent), b[y], b.as<const float>(dy),
                          score_factor(extent), b.either(dx, dy), stream);
}

constexpr std::array product_rows = {
    Emitter{FusedKind::linear, "linear", "cublasLt"},
    Emitter{FusedKind::attention, "attention", ""},
    Emitter{FusedKind::attention_gradient, "attention_gradient", ""},
    Emitter{FusedKind::attention_product, "attention_product", "cublasLt", nullptr,
            attention_product},
    Emitter{FusedKind::softmax, "softmax", "own sweep", softmax},
    Emitter{FusedKind::softmax_gradient, "softmax_gradient", "own sweep", softmax_gradient},
};

}  // namespace

std::span<const Emitter> of_products() { return product_rows; }

Launch linear(const Bound& bound, const std::shared_ptr<const std::string>& algorithm) {
  const LinearProblem& problem = *bound.op.linear;
  // Logits stay fp32.
  const bool is_logits =
      problem.op == LinearOp::forward && bound.shapes.graph.are_logits(bound.op.node);
  return product_launch(bound, problem.product(is_logits), algorithm,
                        [=](const Product& product, const void* bias, cudaStream_t stream) {
                          product.launch(linear_operands(bound, bias), bound.resources.workspace,
                                         stream);
                        });
}

}  // namespace nearmetal::cuda::emitters
