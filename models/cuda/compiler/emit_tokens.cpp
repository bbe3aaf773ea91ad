// The emitters of our kernels for tokens, losses and the bias of a classifier, of matrix products,
// and of attention with what lies between its products.
#include <cmath>
#include <stdexcept>

#include "models/cuda/compiler/emission.h"
#include "models/cuda/kernels/activation.h"
#include "models/cuda/kernels/head.h"
#include "models/cuda/kernels/layer_norm.h"
#include "models/cuda/kernels/softmax.h"
#include "models/cuda/kernels/tokens.h"
#include "models/cuda/libraries/linear.h"

namespace nearmetal::cuda::emitters {
namespace {

using enum Role;

void classifier_bias(const Bound& b, cudaStream_t stream) {
  const LogitsShape logits = b.shapes.logits(b.op.node);
  // The row's padding lies over that of the bias's slice.
  launch_activation(Precision::fp32, b[y], {b.value(b.parameter(1))}, b[y],
                    {logits.rows, logits.row_elements}, b.multiprocessors(), stream);
}

void softmax_loss(const Bound& b, cudaStream_t stream) {
  const int64_t first = b.micro_batch * b.shapes.batch;
  const StepResources& r = b.resources;
  launch_softmax_loss(b.precision(), b.shapes.logits(b.input()), b.as<const float>(x),
                      b.value(b.op.bias), r.labels + first, &r.state->loss_scale, r.losses + first,
                      b[dx], stream);
}

void span_loss(const Bound& b, cudaStream_t stream) {
  const int64_t first = b.micro_batch * b.shapes.batch;
  const StepResources& r = b.resources;
  launch_span_loss(b.precision(), b.shapes.logits(b.input()),
                   static_cast<int>(b.shapes.tokens(b.input()).tokens), b.as<const float>(x),
                   b.value(b.op.bias), r.labels + 2 * first, &r.state->loss_scale, r.losses + first,
                   b[dx], stream);
}

void layer_norm_sums(const Bound& b, cudaStream_t stream) {
  LayerNormSumsList list;
  for (const LayerNormGradients& of : b.op.layer_norms) {
    list.sums[list.count] = {
        static_cast<const float*>(b.operands[list.count]->data),
        layer_norm_backward_blocks(b.precision(), of.extent, b.multiprocessors()),
        of.extent.channels,
        {b.vector_gradient(of.scale), b.vector_gradient(of.bias),
         b.vector_gradient(of.bias_before)}};
    ++list.count;
  }
  launch_layer_norm_sums(list, stream);
}

// The token ids of the micro-batch.
const int32_t* token_ids(const Bound& b) {
  return b.resources.tokens + b.micro_batch * b.shapes.batch * b.shapes.graph.image().tokens();
}

int64_t rows_of_table(const Bound& b, int table) {
  return b.shapes.graph.parameters()[b.parameter(table)].dims[0];
}

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

constexpr Emitter token_rows[] = {
    {FusedKind::classifier_bias, "classifier_bias", "own sweep", classifier_bias},
    {FusedKind::classifier_bias_gradient, "classifier_bias_gradient", "own",
     [](const Bound& b, cudaStream_t stream) {
       launch_bias_gradient(b.precision(), b.shapes.logits(b.op.node), b[dy],
                            b.vector_gradient(b.parameter(1)), stream);
     }},
    {FusedKind::softmax_loss, "softmax_loss", "own", softmax_loss},
    {FusedKind::span_loss, "span_loss", "own", span_loss},
    {FusedKind::gelu, "gelu", "own sweep",
     [](const Bound& b, cudaStream_t stream) {
       launch_gelu(b.precision(), b[x], b.value(b.op.bias), b.either(y, x), b.extent(),
                   b.multiprocessors(), stream);
     }},
    {FusedKind::gelu_gradient, "gelu_gradient", "own sweep",
     [](const Bound& b, cudaStream_t stream) {
       launch_gelu_backward(b.precision(),
                            {b[dy], b[x], b.value(b.op.bias), b[dx], b.vector_gradient(b.op.bias)},
                            b.extent(), b.reduction(), stream);
     }},
    {FusedKind::layer_norm, "layer_norm", "own sweep",
     [](const Bound& b, cudaStream_t stream) {
       launch_layer_norm(b.precision(),
                         {b[x], b.value(b.parameter(0)), b.value(b.parameter(1)), b.node().epsilon,
                          b[y], b.as<float>(statistics)},
                         b.extent(), stream);
     }},
    {FusedKind::layer_norm_gradient, "layer_norm_gradient", "own sweep",
     [](const Bound& b, cudaStream_t stream) {
       launch_layer_norm_backward(b.precision(),
                                  {b[x], b[dy], b[dy_second], b[residual], b.value(b.parameter(0)),
                                   b.as<const float>(statistics), b[dx],
                                   b.op.layer_norms.front().bias_before >= 0, b.as<float>(sums)},
                                  b.extent(), b.multiprocessors(), stream);
     }},
    {FusedKind::layer_norm_sums, "layer_norm_sums", "own sums", layer_norm_sums},
    {FusedKind::class_token, "class_token", "own sweep",
     [](const Bound& b, cudaStream_t stream) {
       launch_prepend_token(b.precision(), b.shapes.tokens(b.input()), b[x], b.value(b.parameter()),
                            b[y], stream);
     }},
    {FusedKind::class_token_gradient, "class_token_gradient", "own sweep",
     [](const Bound& b, cudaStream_t stream) {
       launch_prepend_token_backward(b.precision(), b.shapes.tokens(b.input()), b[dy], b[dx],
                                     b.matrix_gradient(b.parameter()), stream);
     }},
    {FusedKind::positions, "positions", "own sweep",
     [](const Bound& b, cudaStream_t stream) {
       launch_add_positions(b.precision(), b.shapes.tokens(b.op.node), b[x], b.value(b.parameter()),
                            b[y], stream);
     }},
    {FusedKind::positions_gradient, "positions_gradient", "own sweep",
     [](const Bound& b, cudaStream_t stream) {
       launch_positions_gradient(b.precision(), b.shapes.tokens(b.op.node), b[dy],
                                 b.matrix_gradient(b.parameter()), stream);
     }},
    {FusedKind::select_token, "select_token", "own sweep",
     [](const Bound& b, cudaStream_t stream) {
       launch_first_token(b.precision(), b.shapes.tokens(b.input()), b[x], b[y], stream);
     }},
    {FusedKind::select_token_gradient, "select_token_gradient", "own sweep",
     [](const Bound& b, cudaStream_t stream) {
       launch_first_token_backward(b.precision(), b.shapes.tokens(b.input()), b[dy], b[dx], stream);
     }},
    {FusedKind::embedding, "embedding", "own sweep",
     [](const Bound& b, cudaStream_t stream) {
       launch_embedding(b.precision(), b.shapes.tokens(b.op.node), token_ids(b),
                        {b.value(b.parameter(0)), b.value(b.parameter(1)), b.value(b.parameter(2))},
                        b[y], stream);
     }},
    {FusedKind::places_gradient, "places_gradient", "own sweep",
     [](const Bound& b, cudaStream_t stream) {
       launch_places_gradient(b.precision(), b.shapes.tokens(b.op.node), rows_of_table(b, 1), b[dy],
                              b.as<float>(sums), b.matrix_gradient(b.parameter(1)), stream);
     }},
    {FusedKind::types_gradient, "types_gradient", "own sweep",
     [](const Bound& b, cudaStream_t stream) {
       launch_types_gradient(b.precision(), b.shapes.tokens(b.op.node), rows_of_table(b, 2),
                             b.as<const float>(sums), b.matrix_gradient(b.parameter(2)), stream);
     }},
    {FusedKind::words_gradient, "words_gradient", "own sweep",
     [](const Bound& b, cudaStream_t stream) {
       launch_words_gradient(b.precision(), b.shapes.tokens(b.op.node), token_ids(b),
                             rows_of_table(b, 0), b[dy], b.as<uint32_t>(scratch),
                             b.matrix_gradient(b.parameter(0)), stream);
     }},
    {FusedKind::linear, "linear", "cublasLt"},
    {FusedKind::attention, "attention", ""},
    {FusedKind::attention_gradient, "attention_gradient", ""},
    {FusedKind::attention_product, "attention_product", "cublasLt", nullptr, attention_product},
    {FusedKind::softmax, "softmax", "own sweep", softmax},
    {FusedKind::softmax_gradient, "softmax_gradient", "own sweep", softmax_gradient},
};

}  // namespace

std::span<const Emitter> of_tokens() { return token_rows; }

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
