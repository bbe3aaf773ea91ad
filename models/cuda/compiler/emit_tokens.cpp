#include "models/cuda/compiler/emit_tokens.h"

#include <array>

#include "models/cuda/kernels/activation.h"
#include "models/cuda/kernels/head.h"
#include "models/cuda/kernels/layer_norm.h"
#include "models/cuda/kernels/tokens.h"

namespace nearmetal::cuda::emitters {
namespace {

using enum Role;

ParameterPlace parameter_of(const FusedOp& op, const Emission& e, int index) {
  return {e.graph.node(op.node).parameters[index], e};
}

int64_t rows_of_table(const FusedOp& op, const Emission& e, int table) {
  return e.graph.parameters()[e.graph.node(op.node).parameters[table]].dims[0];
}

// The token ids of the micro-batch.
std::function<const int32_t*()> token_ids(const Emission& e) {
  return [first = e.micro_batch * e.shapes.batch * e.graph.image().tokens(), &r = e.resources] {
    return r.tokens + first;
  };
}

Launch emit_classifier_bias(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), logits = e.shapes.logits(op.node), bias = parameter_of(op, e, 1),
          &r = e.resources](cudaStream_t stream) {
    // The row's padding lies over that of the bias's slice.
    launch_activation(Precision::fp32, at[y], {bias.value(), false}, at[y],
                      {logits.rows, logits.row_elements}, r.reduction.multiprocessors, stream);
  };
}

Launch emit_classifier_bias_gradient(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision, logits = e.shapes.logits(op.node),
          bias = parameter_of(op, e, 1)](cudaStream_t stream) {
    launch_bias_gradient(precision, logits, at[dy], bias.vector_gradient(), stream);
  };
}

Launch emit_softmax_loss(const FusedOp& op, const Emission& e) {
  return
      [at = Operands(op, e), precision = e.options.precision,
       shape = e.shapes.logits(e.graph.node(op.node).inputs[0]), bias = ParameterPlace(op.bias, e),
       first = e.micro_batch * e.shapes.batch, &r = e.resources](cudaStream_t stream) {
        launch_softmax_loss(precision, shape, at.as<const float>(x), bias.value(), r.labels + first,
                            &r.state->loss_scale, r.losses + first, at[dx], stream);
      };
}

Launch emit_span_loss(const FusedOp& op, const Emission& e) {
  const int linear = e.graph.node(op.node).inputs[0];
  return [at = Operands(op, e), precision = e.options.precision, shape = e.shapes.logits(linear),
          tokens = static_cast<int>(e.shapes.tokens(linear).tokens),
          bias = ParameterPlace(op.bias, e), first = e.micro_batch * e.shapes.batch,
          &r = e.resources](cudaStream_t stream) {
    launch_span_loss(precision, shape, tokens, at.as<const float>(x), bias.value(),
                     r.labels + 2 * first, &r.state->loss_scale, r.losses + first, at[dx], stream);
  };
}

Launch emit_gelu(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision, extent = e.shapes.extent(op.node),
          bias = ParameterPlace(op.bias, e), &r = e.resources](cudaStream_t stream) {
    void* result = at.tensor(y) == nullptr ? at[x] : at[y];
    launch_gelu(precision, at[x], bias.value(), result, extent, r.reduction.multiprocessors,
                stream);
  };
}

Launch emit_gelu_gradient(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision, extent = e.shapes.extent(op.node),
          bias = ParameterPlace(op.bias, e), &r = e.resources](cudaStream_t stream) {
    launch_gelu_backward(precision, {at[dy], at[x], bias.value(), at[dx], bias.vector_gradient()},
                         extent, r.reduction, stream);
  };
}

Launch emit_layer_norm(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision, extent = e.shapes.extent(op.node),
          epsilon = e.graph.node(op.node).epsilon, scale = parameter_of(op, e, 0),
          bias = parameter_of(op, e, 1)](cudaStream_t stream) {
    launch_layer_norm(
        precision, {at[x], scale.value(), bias.value(), epsilon, at[y], at.as<float>(statistics)},
        extent, stream);
  };
}

Launch emit_layer_norm_gradient(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision, extent = e.shapes.extent(op.node),
          scale = parameter_of(op, e, 0), sums_dx = op.layer_norms.front().bias_before >= 0,
          &r = e.resources](cudaStream_t stream) {
    LayerNormBackward operands;
    operands.x = at[x];
    operands.dy = at[dy];
    operands.dy_second = at[dy_second];
    operands.other = at[other];
    operands.scale = scale.value();
    operands.statistics = at.as<const float>(statistics);
    operands.dx = at[dx];
    operands.sums_dx = sums_dx;
    operands.partial_sums = at.as<float>(sums);
    launch_layer_norm_backward(precision, operands, extent, r.reduction.multiprocessors, stream);
  };
}

Launch emit_layer_norm_sums(const FusedOp& op, const Emission& e) {
  struct Sums {
    const Tensor* partial_sums;
    Extent extent;
    ParameterPlace scale, bias, bias_before;
  };
  std::vector<Sums> all;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const LayerNormGradients& of = op.layer_norms[i];
    all.push_back({e.tensors[op.operands[i].value], of.extent, ParameterPlace(of.scale, e),
                   ParameterPlace(of.bias, e), ParameterPlace(of.bias_before, e)});
  }
  return [all, precision = e.options.precision, &r = e.resources](cudaStream_t stream) {
    LayerNormSumsList list;
    for (const Sums& of : all) {
      list.sums[list.count++] = {
          static_cast<const float*>(of.partial_sums->data),
          layer_norm_backward_blocks(precision, of.extent, r.reduction.multiprocessors),
          of.extent.channels,
          {of.scale.vector_gradient(), of.bias.vector_gradient(),
           of.bias_before.vector_gradient()}};
    }
    launch_layer_norm_sums(list, stream);
  };
}

Launch emit_class_token(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision, token = parameter_of(op, e, 0),
          extent = e.shapes.tokens(e.graph.node(op.node).inputs[0])](cudaStream_t stream) {
    launch_prepend_token(precision, extent, at[x], token.value(), at[y], stream);
  };
}

Launch emit_class_token_gradient(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision, token = parameter_of(op, e, 0),
          extent = e.shapes.tokens(e.graph.node(op.node).inputs[0])](cudaStream_t stream) {
    launch_prepend_token_backward(precision, extent, at[dy], at[dx], token.gradient(), stream);
  };
}

Launch emit_positions(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision, extent = e.shapes.tokens(op.node),
          positions = parameter_of(op, e, 0)](cudaStream_t stream) {
    launch_add_positions(precision, extent, at[x], positions.value(), at[y], stream);
  };
}

Launch emit_positions_gradient(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision, extent = e.shapes.tokens(op.node),
          positions = parameter_of(op, e, 0)](cudaStream_t stream) {
    launch_positions_gradient(precision, extent, at[dy], positions.gradient(), stream);
  };
}

Launch emit_select_token(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision,
          extent = e.shapes.tokens(e.graph.node(op.node).inputs[0])](cudaStream_t stream) {
    launch_first_token(precision, extent, at[x], at[y], stream);
  };
}

Launch emit_select_token_gradient(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision,
          extent = e.shapes.tokens(e.graph.node(op.node).inputs[0])](cudaStream_t stream) {
    launch_first_token_backward(precision, extent, at[dy], at[dx], stream);
  };
}

Launch emit_embedding(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision, extent = e.shapes.tokens(op.node),
          ids = token_ids(e), words = parameter_of(op, e, 0), positions = parameter_of(op, e, 1),
          types = parameter_of(op, e, 2)](cudaStream_t stream) {
    launch_embedding(precision, extent, ids(), {words.value(), positions.value(), types.value()},
                     at[y], stream);
  };
}

Launch emit_places_gradient(const FusedOp& op, const Emission& e) {
  return
      [at = Operands(op, e), precision = e.options.precision, extent = e.shapes.tokens(op.node),
       positions = rows_of_table(op, e, 1), table = parameter_of(op, e, 1)](cudaStream_t stream) {
        launch_places_gradient(precision, extent, positions, at[dy], at.as<float>(place_sums),
                               table.gradient(), stream);
      };
}

Launch emit_types_gradient(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision, extent = e.shapes.tokens(op.node),
          types = rows_of_table(op, e, 2), table = parameter_of(op, e, 2)](cudaStream_t stream) {
    launch_types_gradient(precision, extent, types, at.as<const float>(place_sums),
                          table.gradient(), stream);
  };
}

Launch emit_words_gradient(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision, extent = e.shapes.tokens(op.node),
          ids = token_ids(e), words = rows_of_table(op, e, 0),
          table = parameter_of(op, e, 0)](cudaStream_t stream) {
    launch_words_gradient(precision, extent, ids(), words, at[dy], at.as<uint32_t>(Role::scratch),
                          table.gradient(), stream);
  };
}

constexpr std::array token_rows = {
    Emitter{FusedKind::gelu, "gelu", "own sweep", emit_gelu},
    Emitter{FusedKind::gelu_gradient, "gelu_gradient", "own sweep", emit_gelu_gradient},
    Emitter{FusedKind::classifier_bias, "classifier_bias", "own sweep", emit_classifier_bias},
    Emitter{FusedKind::classifier_bias_gradient, "classifier_bias_gradient", "own",
            emit_classifier_bias_gradient},
    Emitter{FusedKind::softmax_loss, "softmax_loss", "own", emit_softmax_loss},
    Emitter{FusedKind::span_loss, "span_loss", "own", emit_span_loss},
    Emitter{FusedKind::layer_norm, "layer_norm", "own sweep", emit_layer_norm},
    Emitter{FusedKind::layer_norm_gradient, "layer_norm_gradient", "own sweep",
            emit_layer_norm_gradient},
    Emitter{FusedKind::layer_norm_sums, "layer_norm_sums", "own sums", emit_layer_norm_sums},
    Emitter{FusedKind::class_token, "class_token", "own sweep", emit_class_token},
    Emitter{FusedKind::class_token_gradient, "class_token_gradient", "own sweep",
            emit_class_token_gradient},
    Emitter{FusedKind::positions, "positions", "own sweep", emit_positions},
    Emitter{FusedKind::positions_gradient, "positions_gradient", "own sweep",
            emit_positions_gradient},
    Emitter{FusedKind::select_token, "select_token", "own sweep", emit_select_token},
    Emitter{FusedKind::select_token_gradient, "select_token_gradient", "own sweep",
            emit_select_token_gradient},
    Emitter{FusedKind::embedding, "embedding", "own sweep", emit_embedding},
    Emitter{FusedKind::places_gradient, "places_gradient", "own sweep", emit_places_gradient},
    Emitter{FusedKind::types_gradient, "types_gradient", "own sweep", emit_types_gradient},
    Emitter{FusedKind::words_gradient, "words_gradient", "own sweep", emit_words_gradient},
};

}  // namespace

std::span<const Emitter> token_emitters() { return token_rows; }

}  // namespace nearmetal::cuda::emitters
