// Attention by cuDNN's kernels or ours, or by cuBLASLt's products and our softmax between them.
#include <cmath>
#include <set>

#include "models/cuda/compiler/lowering_state.h"
#include "models/cuda/kernels/attention/attention.h"

namespace nearmetal::cuda {
namespace {

float score_factor(const AttentionExtent& extent) {
  return 1 / std::sqrt(static_cast<float>(extent.head_features));
}

SoftmaxShape softmax_shape(const AttentionExtent& extent) {
  return {extent.rows(), static_cast<int>(extent.tokens),
          static_cast<int>(score_row_elements(extent))};
}

AttentionExtent extent_of(const Node& attention, int64_t batch) {
  return {batch, attention.shape.tokens(), attention.heads,
          attention.shape.channels / attention.heads};
}

}  // namespace

AttentionExtent Lowering::attention_extent(int attention) const {
  return extent_of(graph_.node(attention), options_.batch_size);
}

void Lowering::emit_attention_product(int attention, Phase phase, const AttentionProduct& product) {
  const Node& node = graph_.node(attention);
  const AttentionCalls calls = attention_calls(attention_extent(attention), product);
  const int64_t size = element_size();
  const int64_t result_size = product.fp32_result ? 4 : size;
  Kernel& kernel = emit_product(
      node.name, phase, calls.shape, {product.a.tensor, product.b.tensor, product.d.tensor},
      [=, a = product.a, b = product.b, d = product.d, &r = resources_](
          const Product& of_call, const void*, cudaStream_t stream) {
        for (int64_t call = 0; call < calls.calls; ++call) {
          const auto at = [call](const HeadMatrices& m, int64_t step, int64_t element_bytes) {
            return static_cast<char*>(m.tensor->data) + (m.first + call * step) * element_bytes;
          };
          of_call.launch({at(a, calls.a_step, size), at(b, calls.b_step, size),
                          at(d, calls.d_step, result_size)},
                         r.workspace, stream);
        }
      });
  // Its two products forward are alike, and so are the four backward.
  kernel.flops = graph_.forward_flops(node) / 2 * static_cast<double>(options_.batch_size);
}

AttentionKernel Lowering::attention_kernel(const AttentionProblem& problem) const {
  const auto chosen = choices_.attention.find(problem.key());
  if (chosen != choices_.attention.end()) return chosen->second;
  const bool own = choices_.own_attention && !by_cudnn() &&
                   fits_attention_kernels(problem.precision, problem.extent);
  return own ? AttentionKernel::own : AttentionKernel::products;
}

void Lowering::forward_attention(int i) {
  const Node& node = graph_.node(i);
  const AttentionProblem problem{AttentionOp::forward, attention_extent(i), options_.precision};
  if (problem.extent.head_features % 8 != 0) {
    unsupported(node, "the features of a head are not a multiple of 8");
  }
  const AttentionKernel chosen = attention_kernel(problem);
  if (chosen == AttentionKernel::products) return forward_attention_products(i);
  const bool by_library = chosen == AttentionKernel::cudnn;
  const Tensor *packed = value(node.inputs[0]), *y = tensor(value_bytes(i));
  values_[i] = y;
  const Tensor* log_sums = nullptr;
  if (by_library || !options_.forward_only) log_sums = tensor(problem.extent.rows() * 4);
  sums_[i] = log_sums;
  const auto launch = [=](cudaStream_t stream) {
    AttentionForward operands{packed->data, y->data, nullptr};
    if (log_sums != nullptr) operands.log_sums = static_cast<float*>(log_sums->data);
    launch_attention(problem.precision, problem.extent, operands, stream);
  };
  Kernel& kernel = emit(node.name, Phase::forward, by_library ? "" : "own", {packed, y, log_sums},
                        by_library ? Launch() : launch);
  if (by_library) kernel.attention = {problem, packed, y, log_sums};
  kernel.flops = graph_.forward_flops(node) * static_cast<double>(options_.batch_size);
}

void Lowering::backward_attention(int i) {
  const AttentionProblem problem{AttentionOp::backward, attention_extent(i), options_.precision};
  const AttentionKernel chosen = attention_kernel(problem);
  if (chosen == AttentionKernel::products) return backward_attention_products(i);
  const bool by_library = chosen == AttentionKernel::cudnn;
  const Node& node = graph_.node(i);
  const int input = node.inputs[0];
  const Tensor *dy = gradient_of(i), *packed = value(input), *y = value(i), *log_sums = sums_[i];
  const Tensor* packed_gradient = tensor(value_bytes(input));
  gradients_[input].push_back(packed_gradient);
  const Tensor* dots = tensor(problem.extent.rows() * 4);
  const auto launch = [=](cudaStream_t stream) {
    launch_attention_backward(
        problem.precision, problem.extent,
        {packed->data, y->data, dy->data, static_cast<const float*>(log_sums->data),
         static_cast<float*>(dots->data), packed_gradient->data},
        stream);
  };
  Kernel& kernel =
      emit(node.name, Phase::backward, by_library ? "" : "own",
           {packed, y, dy, log_sums, dots, packed_gradient}, by_library ? Launch() : launch);
  if (by_library) kernel.attention = {problem, packed, y, log_sums, dy, dots, packed_gradient};
  kernel.flops = 2 * graph_.forward_flops(node) * static_cast<double>(options_.batch_size);
}

void Lowering::forward_attention_products(int i) {
  const Node& node = graph_.node(i);
  const AttentionExtent extent = attention_extent(i);
  const Tensor *packed = value(node.inputs[0]), *y = tensor(value_bytes(i));
  values_[i] = y;
  const Tensor* scores = tensor(score_elements(extent) * 4);
  const bool in_place = element_size() == 4;
  const Tensor* probabilities = in_place ? scores : tensor(score_elements(extent) * element_size());
  sums_[i] = probabilities;
  const int64_t tokens = extent.tokens, d = extent.head_features;
  const auto part = [&](int part) { return part_of_packed(extent, packed, part); };
  emit_attention_product(
      i, Phase::forward,
      {part(0), part(1), score_matrices(extent, scores), tokens, tokens, d, false, true, true});
  emit(node.name, Phase::forward, "own sweep", {scores, in_place ? nullptr : probabilities},
       [=, precision = options_.precision](cudaStream_t stream) {
         launch_softmax(precision, softmax_shape(extent), static_cast<const float*>(scores->data),
                        score_factor(extent), probabilities->data, stream);
       });
  emit_attention_product(i, Phase::forward,
                         {score_matrices(extent, probabilities), part(2),
                          heads_of_tokens(extent, y), tokens, d, tokens});
}

void Lowering::backward_attention_products(int i) {
  const Node& node = graph_.node(i);
  const AttentionExtent extent = attention_extent(i);
  const int input = node.inputs[0];
  const Tensor *dy = gradient_of(i), *packed = value(input), *probabilities = sums_[i];
  const Tensor* packed_gradient = tensor(value_bytes(input));
  gradients_[input].push_back(packed_gradient);
  const Tensor* gradient = tensor(score_elements(extent) * 4);  // of the probabilities
  const bool in_place = element_size() == 4;
  const Tensor* score_gradient =
      in_place ? gradient : tensor(score_elements(extent) * element_size());
  const int64_t tokens = extent.tokens, d = extent.head_features;
  const auto part = [&](int part) { return part_of_packed(extent, packed, part); };
  const auto part_gradient = [&](int part) {
    return part_of_packed(extent, packed_gradient, part);
  };
  const HeadMatrices dy_heads = heads_of_tokens(extent, dy);
  const HeadMatrices p = score_matrices(extent, probabilities);
  const HeadMatrices ds = score_matrices(extent, score_gradient);
  emit_attention_product(i, Phase::backward,
                         {p, dy_heads, part_gradient(2), tokens, d, tokens, true});
  emit_attention_product(
      i, Phase::backward,
      {dy_heads, part(2), score_matrices(extent, gradient), tokens, tokens, d, false, true, true});
  emit(node.name, Phase::backward, "own sweep",
       {probabilities, gradient, in_place ? nullptr : score_gradient},
       [=, precision = options_.precision](cudaStream_t stream) {
         launch_softmax_backward(precision, softmax_shape(extent), probabilities->data,
                                 static_cast<const float*>(gradient->data), score_factor(extent),
                                 score_gradient->data, stream);
       });
  emit_attention_product(i, Phase::backward, {ds, part(1), part_gradient(0), tokens, d, tokens});
  emit_attention_product(i, Phase::backward,
                         {ds, part(0), part_gradient(1), tokens, d, tokens, true});
}

std::vector<AttentionProblem> distinct_attention(const Graph& graph,
                                                 const ProgramOptions& options) {
  std::vector<AttentionProblem> problems;
  if (element_bytes(options.precision) != 2) return problems;  // products have no rival
  std::set<std::string> keys;
  for (const Node& node : graph.nodes()) {
    if (node.op != OpKind::attention) continue;
    const AttentionProblem forward{AttentionOp::forward, extent_of(node, options.batch_size),
                                   options.precision};
    if (!keys.insert(forward.key()).second) continue;
    problems.push_back(forward);
    if (!options.forward_only) problems.push_back(forward.with(AttentionOp::backward));
  }
  return problems;
}

}  // namespace nearmetal::cuda
