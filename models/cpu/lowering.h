// Turns a graph into the oneDNN primitives and loops of one step.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "models/cpu/lowered_step.h"
#include "models/cpu/onednn.h"

namespace nearmetal::cpu {

/// The passes, transfers and marks of a step in its order, where those of the stages of a pipeline
/// have operations of their own for each micro-batch; else all share those of one, and its memory.
/// Allocates nothing of the size of a tensor; `state` is read when operations run. The number of
/// OpenMP threads must be the same then.
LoweredStep lower(const Graph& graph, const ProgramOptions& options, const dnnl::engine& engine,
                  StepState& state);

using Desc = dnnl::memory::desc;
using Arguments = std::vector<std::pair<int, Tensor*>>;

inline Desc any_fp32(const Dims& dims) {
  return {dims, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any};
}
inline Desc fp32_vector(int64_t elements) {
  return {{elements}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::a};
}

/// The state of lower() while it walks through the graph: forward, then backward. What the
/// functions of a layer need is public: they add its operations, and what they leave by node.
class Lowering {
 public:
  Lowering(const Graph& graph, const ProgramOptions& options, const dnnl::engine& engine,
           StepState& state);
  LoweredStep run();

  Tensor* tensor(const Desc& desc, Region region = Region::step, int64_t offset_bytes = 0);
  // The same memory, or a part of it, in another shape.
  Tensor* view(Tensor* whole, const Desc& desc, int64_t offset_bytes = 0);
  Desc any(const Dims& dims) const { return {dims, type, dnnl::memory::format_tag::any}; }
  Dims dims(int node) const;
  Desc bias_desc(const Node& product) const {
    return product.has_bias() ? fp32_vector(product.shape.channels) : Desc();
  }
  dnnl::prop_kind direction() const {
    return graph.is_trainable() ? dnnl::prop_kind::forward_training
                                : dnnl::prop_kind::forward_inference;
  }
  const char* pass() const { return graph.is_trainable() ? " forward" : " inference"; }
  double flops(int node) const;
  std::string key(const std::string& what, int node) const;

  Operation& emit(const std::string& name, Phase phase, const std::string& implementation,
                  std::vector<Tensor*> operands, std::function<void()> run);
  // A loop of ours that computes this node alone.
  Operation& emit_loop(int node, Phase phase, std::vector<Tensor*> operands,
                       std::function<void()> run) {
    return emit(graph.node(node).name, phase, "own loop", std::move(operands), std::move(run));
  }
  // A primitive, with a scratchpad that lives as long as it runs.
  template <class Primitive, class PrimitiveDesc>
  Operation& emit(const std::string& name, Phase phase, const std::string& key,
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
  // One that computes this node, or a part of its gradient.
  template <class Primitive, class PrimitiveDesc>
  Operation& emit(int node, Phase phase, const std::string& what, const PrimitiveDesc& desc,
                  Arguments arguments) {
    Operation& operation =
        emit<Primitive>(graph.node(node).name, phase, key(what, node), desc, std::move(arguments));
    operation.flops = flops(node);
    return operation;
  }
  void emit_sum(const std::string& name, Phase phase, Tensor* left, Tensor* right, bool relu,
                Tensor* out);
  // The same values in the wanted layout: `from` itself if it has that.
  Tensor* reordered(const std::string& name, Phase phase, Tensor* from, const Desc& wanted);

  // A parameter's layout is that which its forward primitive takes.
  void define_parameter(int parameter, const Desc& desc);
  Tensor* operand(int parameter) const;
  Tensor* vector_operand(int parameter);  // defines it, too
  Tensor* gradient(int parameter) const { return step.slices[parameter].gradient; }
  void store_gradient(const std::string& name, int parameter, Tensor* gradient);
  // The tensor that a gradient in this layout is computed into.
  Tensor* gradient_target(int parameter, const Desc& desc);

  Tensor* value(int node);  // the image takes the layout of its first reader
  void add_gradient(int node, Tensor* gradient);
  Tensor* gradient_of(int node);  // of all consumers; null if there is none
  // That of a loss in what it reads, which its forward pass computes; null if forward_only.
  Tensor* loss_gradient(int logits, const Desc& desc);

  const Graph& graph;
  const ProgramOptions& options;
  const dnnl::engine& engine;
  StepState& state;
  dnnl::memory::data_type type;
  dnnl::primitive_attr attributes;
  PrimitivePlace place{engine, attributes};
  LoweredStep step;
  int micro_batch = 0;
  // What the passes of one micro-batch leave, all by node.
  struct NodeTensors {
    std::vector<Tensor*> values;
    std::vector<Tensor*> workspaces;
    std::vector<std::vector<Tensor*>> gradients;
    std::map<int, std::pair<Tensor*, Tensor*>> batch_statistics;  // mean, variance
  };
  NodeTensors tensors;  // of the micro-batch that is lowered
  // By node, for their backward primitives.
  std::map<int, dnnl::convolution_forward::primitive_desc> convolutions;
  std::map<int, dnnl::pooling_forward::primitive_desc> pools;
  std::map<int, dnnl::inner_product_forward::primitive_desc> products;
  std::map<int, dnnl::layer_normalization_forward::primitive_desc> layer_norms;
  std::map<int, dnnl::eltwise_forward::primitive_desc> gelus;

 private:
  void reorder_into(const std::string& name, Phase phase, Tensor* from, Tensor* to);
  void lower_event(const StepEvent& event);
  void lower_pass(Pass pass);

  // What makes a graph a stage: values that come and go, the waits for them, and time marks.
  Tensor* boundary_tensor(int boundary);
  Tensor*& boundary(Transfer transfer) {
    return boundary_[micro_batch][static_cast<size_t>(transfer)];
  }
  // The memory of a transfer that is started.
  Tensor* transferred(Transfer transfer);
  void emit_transfer(const StepEvent& event);
  void emit_mark(const StepEvent& event);
  void forward_boundary(int i);
  void backward_boundary(int i);

  void walk(int node, Pass pass);
  void forward(int i);
  void backward(int i);
  void place_parameters();
  void place_step();

  std::vector<NodeTensors> kept_;  // by micro-batch, while another is lowered
  // The boundary tensors of a stage, by micro-batch: received, or to be sent.
  std::vector<std::array<Tensor*, transfer_count>> boundary_;
};

}  // namespace nearmetal::cpu
