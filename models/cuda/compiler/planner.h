// From a graph to the ops of one micro-batch: the first pass of the compiler.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/names.h"
#include "models/cuda/compiler/fused_op.h"
#include "models/cuda/compiler/patterns.h"
#include "models/graph.h"
#include "models/program.h"

namespace nearmetal::cuda {

/// What a plan needs to know of the device.
struct PlannedDevice {
  int multiprocessors = 1;
  cudnnHandle_t cudnn = nullptr;  // null: planned without a device
};

/// Throws std::invalid_argument for a graph with a node that has no kernel.
Ops plan_ops(const Graph& graph, const ProgramOptions& options, const LoweringChoices& choices,
             const PlannedDevice& device);

[[noreturn]] void unsupported(const Node& node, const std::string& reason);

/// What the ops of a node leave. Sums are of a convolution's output by channel, a mask is that of
/// the ReLU of a sum, statistics and log sums are of rows, the reserve is cuDNN's; the last four
/// are of a convolution whose batch norm is computed by second moments of its input.
enum class Part {
  value,
  sums,
  mask,
  winner,
  winner_x,
  statistics,
  log_sums,
  probabilities,
  reserve,
  mean,
  central,
  product,
  scaled_weights,
};
/// Behind the name of the node.
constexpr auto names_of(Part) {
  return std::array{"",
                    " sums",
                    " mask",
                    " winners",
                    " winning x",
                    " statistics",
                    " log sums",
                    " probabilities",
                    " reserve",
                    " input mean",
                    " input moments",
                    " weights x moments",
                    " scaled weights"};
}

/// The form in which the gradient of a node lies there, or what remains to be done to it by the
/// kernel that reads it.
enum class GradientForm {
  whole,
  even_pixels,       // zero elsewhere: what a 1x1 convolution of stride 2 leaves
  masked,            // that of a ReLU's input, with the sums of the batch norm before it taken
  behind_norm,       // of a convolution: of the batch norm that follows it
  behind_norm_relu,  // ... and its ReLU
  behind_pool,       // ... and its pooling
};

struct Gradient {
  ValueId value = no_value;
  GradientForm form = GradientForm::whole;
  int summed_bias = -1;  // the linear layer whose bias has its gradient from the sums of this one
};

/// What is known while the graph is walked: the ops so far, and what the nodes have left.
struct Planner {
  Planner(const Graph& graph, const ProgramOptions& options, const LoweringChoices& choices,
          const PlannedDevice& device);

  const Graph& graph;
  const ProgramOptions& options;
  const LoweringChoices& choices;
  const PlannedDevice& device;
  const Patterns patterns;
  const NodeShapes shapes;
  Ops ops;
  std::map<std::pair<int, Part>, ValueId> left;  // by node
  std::vector<std::vector<Gradient>> gradients;  // by node, one from each consumer
  // The partial sums that the backward pass of layer norms has left so far.
  std::vector<std::pair<ValueId, LayerNormGradients>> layer_norms;

  bool by_cudnn() const { return options.kernels == Kernels::cudnn; }
  const Node& node(int index) const { return graph.node(index); }

  /// The choice for this convolution, of a set or map by key; null where there is none.
  template <class Choices>
  auto chosen(const Choices& by_key, const std::string& key, int conv) const
      -> decltype(&*by_key.begin()) {
    auto found = by_key.find(key);
    if (found == by_key.end()) found = by_key.find(key_at(key, node(conv).name));
    return found == by_key.end() ? nullptr : &*found;
  }

  ValueId new_value(const std::string& name, int64_t bytes, Content content = Content::other);
  ValueId leave(int node, Part part, int64_t bytes, Content content = Content::other);
  /// The same where there is a backward pass, which reads it; else no_value.
  ValueId leave_for_backward(int node, Part part, int64_t bytes, Content content = Content::other) {
    return options.forward_only ? no_value : leave(node, part, bytes, content);
  }
  /// The value of the node, shaped as it.
  ValueId leave_value(int node);
  /// no_value where it is not there.
  ValueId find(int node, Part part) const;
  /// Throws std::logic_error where no op leaves the node's value.
  ValueId value(int node) const;
  void set_value(int node, ValueId value) { left[{node, Part::value}] = value; }

  /// Appends an op to its pass; absent operands are left out.
  FusedOp& add(FusedKind kind, Phase phase, const std::string& name, int node,
               std::initializer_list<Operand> operands);

  /// The same of an op that this node alone is, and that reads its input and leaves its value.
  FusedOp& add_forward(FusedKind kind, int node);
  /// One that reads the gradient of its value and leaves that of its input.
  FusedOp& add_backward(FusedKind kind, int node);

  /// A new gradient of `node`, of its shape, by the op that goes by this name.
  ValueId new_gradient(int node, const std::string& by);
  /// The same, added to those of the node.
  ValueId leave_gradient(int node, int by);
  void add_gradient(int node, Gradient gradient) { gradients[node].push_back(gradient); }
  /// The whole gradients that consumers left: at most two, of which the second may be absent, or
  /// one sum.
  std::pair<ValueId, ValueId> gradients_of(int node, size_t most = 2);
  ValueId gradient_of(int node) { return gradients_of(node, 1).first; }
  /// How many consumers have left one, but for one of even pixels alone.
  int64_t gradient_count(int node) const;
  /// The one in this form; null where there is none.
  const Gradient* gradient_in(int node, GradientForm form) const;
};

// Operands, in the order of the kernel's.
constexpr Operand reads(Role role, ValueId value) { return {role, value}; }
constexpr Operand writes(Role role, ValueId value) { return {role, value, Access::write}; }
constexpr Operand updates(Role role, ValueId value) { return {role, value, Access::update}; }
constexpr Operand in_cache(Operand operand) {
  operand.counted = false;
  return operand;
}
constexpr Operand scratch(ValueId value) { return in_cache(writes(Role::scratch, value)); }

}  // namespace nearmetal::cuda
