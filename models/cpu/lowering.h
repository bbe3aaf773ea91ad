// Turns a graph into the oneDNN primitives and loops of one step.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "models/cpu/loops.h"
#include "models/cpu/lowered_step.h"
#include "models/cpu/onednn.h"
#include "models/cpu/token_loops.h"

namespace nearmetal::cpu {

/// The passes, transfers and marks of a step in its order, where those of the stages of a pipeline
/// have operations of their own for each micro-batch; else all share those of one, and its memory.
/// Allocates nothing of the size of a tensor; `state` is read when operations run. The number of
/// OpenMP threads must be the same then.
LoweredStep lower(const Graph& graph, const ProgramOptions& options, const dnnl::engine& engine,
                  StepState& state);

/// The state of lower() while it walks through the graph: forward, then backward.
class Lowering {
 public:
  Lowering(const Graph& graph, const ProgramOptions& options, const dnnl::engine& engine,
           StepState& state);
  LoweredStep run();

 private:
  using Desc = dnnl::memory::desc;
  using Dims = dnnl::memory::dims;
  using Arguments = std::vector<std::pair<int, Tensor*>>;
  using prop_kind = dnnl::prop_kind;

  Tensor* tensor(const Desc& desc, Region region = Region::step, int64_t offset_bytes = 0);
  // The same memory, or a part of it, in another shape.
  Tensor* view(Tensor* whole, const Desc& desc, int64_t offset_bytes = 0);
  Desc any(const Dims& dims) const { return {dims, type_, dnnl::memory::format_tag::any}; }
  Desc any_fp32(const Dims& dims) const {
    return {dims, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any};
  }
  static Desc vector(int64_t elements) {
    return {{elements}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::a};
  }
  Dims dims(int node) const;
  Desc bias_desc(const Node& product) const {
    return product.has_bias() ? vector(product.shape.channels) : Desc();
  }
  prop_kind direction() const {
    return graph_.is_trainable() ? prop_kind::forward_training : prop_kind::forward_inference;
  }
  const char* pass() const { return graph_.is_trainable() ? " forward" : " inference"; }
  // The operations that a convolution computes along with itself where no backward pass needs what
  // lies between: the sum with a residual, in place, a ReLU, or both.
  struct Epilogue {
    int output = -1;    // the node whose value it leaves
    int residual = -1;  // the node that is added; -1: none
    bool relu = false;
  };
  Epilogue epilogue_of(int conv) const;
  dnnl::primitive_attr attributes_for(const Epilogue& epilogue) const;
  bool fuses_relu(int norm) const { return graph_.is(graph_.sole_consumer(norm), OpKind::relu); }
  Tensor* norm_scratch(const NormExtent& extent);
  double flops(int node) const;
  std::string key(const std::string& what, int node) const;

  Operation& emit(const std::string& name, Phase phase, const std::string& implementation,
                  std::vector<Tensor*> operands, std::function<void()> run);
  // A loop of ours that computes this node alone.
  Operation& emit_loop(int node, Phase phase, std::vector<Tensor*> operands,
                       std::function<void()> run) {
    return emit(graph_.node(node).name, phase, "own loop", std::move(operands), std::move(run));
  }
  // A primitive, with a scratchpad that lives as long as it runs.
  template <class Primitive, class PrimitiveDesc>
  Operation& emit(const std::string& name, Phase phase, const std::string& key,
                  const PrimitiveDesc& desc, Arguments arguments);
  // The same values in the wanted layout: `from` itself if it has that.
  Tensor* reordered(const std::string& name, Phase phase, Tensor* from, const Desc& wanted);
  void reorder_into(const std::string& name, Phase phase, Tensor* from, Tensor* to);

  // A parameter's layout is that which its forward primitive takes.
  void define_parameter(int parameter, const Desc& desc);
  Tensor* operand(int parameter) const;
  Tensor* vector_operand(int parameter);  // defines it, too
  void store_gradient(const std::string& name, int parameter, Tensor* gradient);
  // The tensor that a gradient in this layout is computed into.
  Tensor* gradient_target(int parameter, const Desc& desc);

  void lower_event(const StepEvent& event);
  void lower_pass(Pass pass);

  // What makes a graph a stage: values that come and go, the waits for them, and time marks.
  Tensor* boundary_tensor(int boundary);
  Tensor*& boundary(Transfer transfer) {
    return boundary_[micro_batch_][static_cast<size_t>(transfer)];
  }
  // The memory of a transfer that is started.
  Tensor* transferred(Transfer transfer);
  void emit_transfer(const StepEvent& event);
  void emit_mark(const StepEvent& event);
  void forward_boundary(int i);
  void backward_boundary(int i);

  // How a kind of node is lowered: forward, and backward where a reader left a gradient at its
  // output. Null: there is nothing to do, or backward() knows more.
  struct Rule {
    OpKind op;
    void (Lowering::*forward)(int i) = nullptr;
    void (Lowering::*backward)(int i, Tensor* dy) = nullptr;
    bool fp32_alone = false;
  };
  static const Rule& rule_of(OpKind op);
  void walk(int node, Pass pass);
  void forward(int i);
  void backward(int i);

  // lowering_images.cpp
  void forward_convolution(int i);
  void forward_norm(int i);
  void forward_add(int i);
  void emit_add(int i, int output, bool relu);
  void emit_sum(const std::string& name, Phase phase, Tensor* left, Tensor* right, bool relu,
                Tensor* out);
  void forward_relu(int i);
  static dnnl::algorithm pooling_algorithm(const Node& node) {
    return node.op == OpKind::max_pool ? dnnl::algorithm::pooling_max
                                       : dnnl::algorithm::pooling_avg_exclude_padding;
  }
  PoolWindow pool_window(const Node& node) const;
  void forward_pool(int i);
  void forward_loss(int i);
  void update_statistics();
  Tensor* value(int node);  // the image takes the layout of its first reader

  void backward_add(int i, Tensor* dy);
  void backward_convolution(int i, Tensor* dy);
  void backward_norm(int i, Tensor* dy);
  void backward_relu(int i);
  void backward_pool(int i, Tensor* dy);

  // The matrix that the product reads: rows of a sample's values, or of a token's.
  Tensor* linear_input(const Node& linear, Phase phase);
  Dims linear_weight_dims(const Node& linear, const Tensor* input) const;
  void forward_linear(int i);
  void backward_linear(int i, Tensor* dy);

  // lowering_tokens.cpp: every value there is [batch, tokens, features], features innermost.
  Desc token_desc(int node) const;
  Desc row_desc(int node) const;  // the same, as [batch x tokens, features]
  int64_t rows(int node) const { return options_.batch_size * graph_.node(node).shape.tokens(); }
  // In that layout.
  Tensor* token_value(int node, Phase phase);
  Tensor* as_rows(int node, Tensor* tensor) { return view(tensor, row_desc(node)); }
  TokenExtent token_extent(int node) const;
  Arguments layer_norm_statistics(int i);  // mean and variance of each token, kept
  void forward_layer_norm(int i);
  void backward_layer_norm(int i, Tensor* dy);
  void forward_gelu(int i);
  void backward_gelu(int i, Tensor* dy);
  void forward_class_token(int i);
  void backward_class_token(int i, Tensor* dy);
  void forward_positions(int i);
  void backward_positions(int i, Tensor* dy);
  void forward_select_token(int i);
  void backward_select_token(int i, Tensor* dy);

  static const int32_t* ids_of(const StepState& state, int64_t first_sample, int64_t tokens);
  void forward_embedding(int i);
  void backward_embedding(int i, Tensor* dy);
  void forward_span_loss(int i);

  AttentionExtent attention_extent(const Node& node) const;
  void forward_attention(int i);
  void backward_attention(int i, Tensor* dy);

  void add_gradient(int node, Tensor* gradient);
  Tensor* gradient_of(int node);  // of all consumers; null if there is none

  void place_parameters();
  void place_step();

  const Graph& graph_;
  const ProgramOptions& options_;
  const dnnl::engine& engine_;
  StepState& state_;
  dnnl::memory::data_type type_;
  dnnl::primitive_attr attributes_;
  PrimitivePlace place_{engine_, attributes_};
  LoweredStep step_;
  int micro_batch_ = 0;
  // What the passes of one micro-batch leave, all by node.
  struct NodeTensors {
    std::vector<Tensor*> values;
    std::vector<Tensor*> workspaces;
    std::vector<std::vector<Tensor*>> gradients;
    std::map<int, std::pair<Tensor*, Tensor*>> batch_statistics;  // mean, variance
  };
  std::vector<NodeTensors> kept_;  // by micro-batch, while another is lowered
  NodeTensors tensors_;            // of the one that is lowered
  // The boundary tensors of a stage, by micro-batch: received, or to be sent.
  std::vector<std::array<Tensor*, transfer_count>> boundary_;
  std::map<int, dnnl::convolution_forward::primitive_desc> convolutions_;
  std::map<int, dnnl::pooling_forward::primitive_desc> pools_;
  std::map<int, dnnl::inner_product_forward::primitive_desc> products_;
  std::map<int, dnnl::layer_normalization_forward::primitive_desc> layer_norms_;
  std::map<int, dnnl::eltwise_forward::primitive_desc> gelus_;
};

template <class Primitive, class PrimitiveDesc>
Operation& Lowering::emit(const std::string& name, Phase phase, const std::string& key,
                          const PrimitiveDesc& desc, Arguments arguments) {
  if (desc.scratchpad_desc().get_size() > 0) {
    arguments.emplace_back(DNNL_ARG_SCRATCHPAD, tensor(desc.scratchpad_desc()));
  }
  std::vector<Tensor*> operands;
  for (const auto& [index, operand] : arguments) operands.push_back(operand);
  Operation& operation =
      emit(name, phase, std::string("onednn ") + desc.impl_info_str(), operands, nullptr);
  operation.key = key;
  operation.make = [desc] { return Primitive(desc); };
  for (const auto& [index, operand] : arguments) operation.arguments[index] = operand->memory;
  return operation;
}

}  // namespace nearmetal::cpu
