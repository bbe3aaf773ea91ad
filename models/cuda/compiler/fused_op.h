// What the kernels of a pass compute, as values: which nodes of the graph each takes together, what
// it reads and what it leaves. Nothing here has an address.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/names.h"
#include "models/cuda/compiler/flat_layout.h"
#include "models/cuda/compiler/patterns.h"
#include "models/cuda/kernels/batch_norm.h"
#include "models/cuda/libraries/attention.h"
#include "models/cuda/libraries/convolution.h"
#include "models/cuda/libraries/linear.h"
#include "models/kernel_choice.h"
#include "models/memory_plan.h"
#include "models/shapes.h"

namespace nearmetal::cuda {

/// A kernel of ours or a library's, each with one emitter (emission.cpp).
enum class FusedKind {
  convolution,  // by a plan of cuDNN's
  batch_statistics,
  stem_forward,
  normalise,
  normalise_pool,
  average_pool,
  activation,
  activation_pool,
  gelu,
  add,
  norm_gradient_sums,
  norm_gradient_apply,
  pool_gradient_apply,
  pointwise_backward,
  pointwise_products,
  stem_backward,
  stem_mask,
  average_pool_gradient,
  activation_gradient,
  activation_pool_gradient,
  gelu_gradient,
  second_moments,
  moments_statistics,
  pointwise_forward,
  moments_gradient,
  moments_sums,
  linear,
  classifier_bias,
  classifier_bias_gradient,
  softmax_loss,
  span_loss,
  layer_norm,
  layer_norm_gradient,
  layer_norm_sums,
  attention,
  attention_gradient,
  attention_product,
  softmax,
  softmax_gradient,
  class_token,
  class_token_gradient,
  positions,
  positions_gradient,
  select_token,
  select_token_gradient,
  embedding,
  places_gradient,
  types_gradient,
  words_gradient,
  cudnn_norm,
  cudnn_norm_gradient,
  cudnn_pool,
  cudnn_pool_gradient,
  cudnn_sum,
  cudnn_bias,
  cudnn_relu,
  cudnn_relu_gradient,
};

constexpr auto names_of(Incoming) {
  return std::array{"one gradient", "two gradients", "two gradients, the second at even pixels",
                    "the gradient of the mean"};
}

/// An index into Ops::values.
using ValueId = int;
inline constexpr ValueId no_value = -1;

struct Value {
  std::string name;  // "layer1.0.conv1", "layer1.0.conv1 sums", "gradient of layer1.0.relu ..."
  int64_t bytes = 0;
  Content content = Content::other;
  int node = -1;  // whose value it is, or the mask of
};

/// The place of an operand among those of its kernel.
enum class Role {
  x,
  y,
  sums,
  residual,
  residual_sums,
  mask,
  winner,
  winner_x,
  dy,
  dy_second,
  dz,
  dx,
  dx_second,
  residual_x,
  residual_dx,
  weights,
  statistics,
  mean,
  central,
  product,
  matrix,
  vector,
  largest,
  reserve,
  scratch,
};
inline constexpr int role_count = static_cast<int>(Role::scratch) + 1;
constexpr auto names_of(Role) {
  return std::array{"x",       "y",          "sums",      "residual",   "residual_sums",
                    "mask",    "winner",     "winner_x",  "dy",         "dy_second",
                    "dz",      "dx",         "dx_second", "residual_x", "residual_dx",
                    "weights", "statistics", "mean",      "central",    "product",
                    "matrix",  "vector",     "largest",   "reserve",    "scratch"};
}

enum class Access { read, write, update };

struct Operand {
  Role role;
  ValueId value = no_value;
  Access access = Access::read;
  bool counted = true;  // among the bytes; else it stays in L2
};

/// The matrices of heads in a tensor, in elements.
struct HeadMatrices {
  int64_t first = 0;      // of the first head of the first sample
  int64_t row_step = 0;   // from row to row
  int64_t head_step = 0;  // from head to head
  int64_t sample_step = 0;
};

/// A product of attention, for all heads of all samples: d = a * b, where a and b may be stored
/// transposed, `inner` being the dimension they share.
struct AttentionProduct {
  HeadMatrices a, b, d;
  int64_t rows = 0, columns = 0, inner = 0;
  bool a_transposed = false, b_transposed = false;
  bool fp32_result = false;
};
/// The size of a row of scores or probabilities [batch, heads, tokens, row]: rows are aligned.
constexpr int64_t score_row_elements(const AttentionExtent& extent) {
  return round_up(extent.tokens, 8);
}

/// What the backward pass of a layer norm leaves in partial sums: the gradients of these
/// parameters.
struct LayerNormGradients {
  Extent extent;
  int scale = -1, bias = -1, bias_before = -1;  // the last of a linear layer before it; -1: none
};

/// One kernel.
struct FusedOp {
  FusedKind kind{};
  Phase phase{};
  std::string name;                 // the nodes that it computes: "layer1.0.bn3 + layer1.0.relu"
  int node = -1;                    // whose shape and parameters it takes
  std::vector<Operand> operands{};  // of a role at most one, but for layer_norm_sums
  std::vector<int> gradients{};     // the parameters whose gradient it leaves
  double flops = 0;
  double bytes = 0;  // each operand once

  // The batch norm that it computes, or through which a gradient goes, with what follows it.
  NormPattern norm{};
  bool relu = false;
  int mean = -1;  // the average pooling that it does, too
  Incoming incoming = Incoming::one;
  int joined_norm = -1;  // the batch norm of the block end whose mask and sums it takes on
  int bias = -1;         // a parameter that it adds to each row, or whose gradient it leaves
  std::optional<ConvolutionProblem> convolution{};
  // The operation that would do this forward convolution and the sweep behind it in one.
  std::optional<ConvolutionOp> with_sweep{};
  std::optional<LinearProblem> linear{};
  bool is_timed = false;  // a product that the tuner chooses an algorithm for
  std::optional<AttentionProblem> attention{};
  std::optional<AttentionProduct> product{};
  std::vector<LayerNormGradients> layer_norms{};  // of layer_norm_sums, as its operands
};

/// The ops of one micro-batch.
struct Ops {
  std::vector<Value> values;
  std::vector<FusedOp> forward, backward;
  std::vector<FusedOp> ends;  // what remains of a backward pass: nothing else waits for it
  // Values that come from elsewhere: images or what a stage received, and what it got back.
  ValueId input = no_value, received_gradient = no_value;
  ValueId output = no_value;          // of the last node
  ValueId input_gradient = no_value;  // of a stage that receives
  ValueId logits = no_value;          // fp32, of a graph without a loss
};

// Decisions that timing makes and that change which kernels there are.

/// Keys of problems. All convolutions of one key share a choice, but for a key that is of one alone
/// (key_at()), as alternatives are tried.
using Keys = std::set<std::string>;
inline std::string key_at(const std::string& key, const std::string& node) {
  return key + " at " + node;
}

/// Who computes the two products of a convolution's backward pass by second moments: one kernel of
/// ours, or two of cuDNN's.
enum class MomentsProducts { own, cudnn };
/// By key of the forward problem, as in Keys.
using MomentsChoices = std::map<std::string, MomentsProducts>;

struct LoweringChoices {
  StemForm stem = StemForm::pad_to_8;
  Keys fused_sweeps;  // problems with a sweep: statistics, bias, ...
  // Backward_data problems which one kernel of ours computes together with backward_weights
  // and the batch norm's gradient before both.
  Keys fused_backward;
  // Convolutions whose batch norm is computed by second moments where a sum follows it.
  MomentsChoices input_moments;
  // Our own kernels for the first convolution, which read the images of pad_to_4: forward with
  // statistics; backward from the pooled gradient to the weights.
  bool own_stem_forward = false;
  bool own_stem_backward = false;
  // Forward problems of attention which cuDNN computes, and their gradients, without scores in
  // memory; the others are products.
  Keys fused_attention{};
};

/// The problems of their convolutions, each once, and those that do the sweep behind one, too.
std::vector<ConvolutionProblem> distinct_problems(const Ops& ops);

/// "forward normalise [layer1.0.bn1 + layer1.0.relu1] x=layer1.0.conv1, sums=layer1.0.conv1 sums ->
/// y=layer1.0.relu1; relu": two ops that share it are the same. Lists have a line for each op.
std::string text_of(const FusedOp& op, const Ops& ops);
std::string text_of(const Ops& ops);

/// Some ops of the two passes.
struct OpsOfPart {
  std::vector<FusedOp> forward, backward;

  bool empty() const { return forward.empty() && backward.empty(); }
};
/// The ops that are not among `others`, by text_of().
OpsOfPart difference(const Ops& ops, const Ops& others);

}  // namespace nearmetal::cuda
