// The emitters of our kernels for tokens, losses and the bias of a classifier.
#include "models/cuda/compiler/emission.h"
#include "models/cuda/kernels/activation.h"
#include "models/cuda/kernels/head.h"
#include "models/cuda/kernels/layer_norm.h"
#include "models/cuda/kernels/tokens.h"

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
};

}  // namespace

std::span<const Emitter> of_tokens() { return token_rows; }

}  // namespace nearmetal::cuda::emitters
