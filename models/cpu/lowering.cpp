#include "models/cpu/lowering.h"

#include <algorithm>
#include <stdexcept>

#include "models/cpu/loops.h"
#include "models/cpu/lowering_images.h"
#include "models/cpu/lowering_tokens.h"
#include "models/memory_plan.h"

namespace nearmetal::cpu {
namespace {

constexpr int64_t slice_alignment = 64;  // bytes: a cache line, the widest vector

dnnl::memory::data_type data_type(Precision precision) {
  return precision == Precision::bf16 ? dnnl::memory::data_type::bf16
                                      : dnnl::memory::data_type::f32;
}

// The same arrangement of elements of another type: oneDNN 3 gives no way to it but its names.
dnnl::memory::desc with_type(const dnnl::memory::desc& desc, dnnl::memory::data_type type) {
  if (type_of(desc) == type) return desc;
  for (int tag = dnnl_format_tag_any + 1; tag < dnnl_format_tag_last; ++tag) {
    const auto named = [&](dnnl::memory::data_type element) {
      return dnnl::memory::desc(dims_of(desc), element, static_cast<dnnl::memory::format_tag>(tag),
                                true);
    };
    const dnnl::memory::desc same = named(type_of(desc));
    if (!is_empty(same) && same == desc) return named(type);
  }
  throw std::runtime_error("oneDNN has no name for the layout of a parameter");
}

// How a kind of node is lowered: forward, and backward where a reader left a gradient at its
// output. Null: there is nothing to do, or Lowering knows more.
struct Rule {
  OpKind op;
  void (*forward)(Lowering& to, int i) = nullptr;
  void (*backward)(Lowering& to, int i, Tensor* dy) = nullptr;
  bool fp32_alone = false;
};

const Rule& rule_of(OpKind op) {
  static constexpr std::array rules = {
      Rule{OpKind::input},
      Rule{OpKind::token_ids},  // no tensor: they lie in the state
      Rule{OpKind::embedding, forward_embedding, backward_embedding, true},
      Rule{OpKind::conv, forward_convolution, backward_convolution},
      Rule{OpKind::batch_norm, forward_norm, backward_norm},
      Rule{OpKind::layer_norm, forward_layer_norm, backward_layer_norm, true},
      Rule{OpKind::relu, forward_relu},
      Rule{OpKind::gelu, forward_gelu, backward_gelu, true},
      Rule{OpKind::add, forward_add, backward_add},
      Rule{OpKind::token_linear, forward_linear, backward_linear, true},
      Rule{OpKind::attention, forward_attention, backward_attention, true},
      Rule{OpKind::class_token, forward_class_token, backward_class_token, true},
      Rule{OpKind::positions, forward_positions, backward_positions, true},
      Rule{OpKind::select_token, forward_select_token, backward_select_token, true},
      Rule{OpKind::max_pool, forward_pool, backward_pool},
      Rule{OpKind::global_average_pool, forward_pool, backward_pool},
      Rule{OpKind::linear, forward_linear, backward_linear},
      Rule{OpKind::softmax_cross_entropy, forward_loss},  // with its gradient
      Rule{OpKind::span_loss, forward_span_loss, nullptr, true},
      Rule{OpKind::boundary},  // of a stage
  };
  static_assert(rules.size() == names_of(OpKind{}).size());
  return *std::ranges::find(rules, op, &Rule::op);
}

}  // namespace

Lowering::Lowering(const Graph& graph, const ProgramOptions& options, const dnnl::engine& engine,
                   StepState& state)
    : graph(graph),
      options(options),
      engine(engine),
      state(state),
      type(data_type(options.precision)) {
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  step.slices.resize(graph.parameters().size());
}

LoweredStep Lowering::run() {
  const int64_t own = options.pipeline.is_pipelined() ? options.micro_batches : 1;
  const size_t nodes = graph.nodes().size();
  kept_.assign(own, {std::vector<Tensor*>(nodes),
                     std::vector<Tensor*>(nodes),
                     std::vector<std::vector<Tensor*>>(nodes),
                     {}});
  boundary_.resize(own);
  const StepFacts facts{.pipeline = options.pipeline,
                        .micro_batches = options.micro_batches,
                        .trainable = graph.is_trainable(),
                        .forward_only = options.forward_only};
  for (const StepEvent& event : step_order(facts)) lower_event(event);
  place_parameters();
  place_step();
  return std::move(step);
}

void Lowering::lower_event(const StepEvent& event) {
  LoweredEvent lowered{.event = event, .begin = step.operations.size()};
  if (event.micro_batch >= std::ssize(kept_)) {  // the first micro-batch has had such an event
    lowered = *std::ranges::find(step.events, event.kind,
                                 [](const LoweredEvent& e) { return e.event.kind; });
    lowered.event = event;
    step.events.push_back(lowered);
    return;
  }
  micro_batch = static_cast<int>(event.micro_batch);
  std::swap(tensors, kept_[micro_batch]);
  switch (event.kind) {
    case StepEventKind::forward:
      lower_pass(Pass::forward);
      update_statistics(*this);
      if (!graph.receives()) lowered.images = tensors.values[0];
      break;
    case StepEventKind::backward:
      lower_pass(Pass::backward);
      break;
    case StepEventKind::start_transfer:
    case StepEventKind::finish_transfer:
      emit_transfer(event);
      break;
    case StepEventKind::begin_pipeline:
    case StepEventKind::begin_task:
    case StepEventKind::end_task:
      emit_mark(event);
      break;
    default:  // what the program does
      break;
  }
  std::swap(tensors, kept_[micro_batch]);
  lowered.end = step.operations.size();
  if (step.images == nullptr) step.images = lowered.images;
  step.events.push_back(lowered);
}

void Lowering::lower_pass(Pass pass) {
  const int count = static_cast<int>(graph.nodes().size());
  for (int i = 0; i < count; ++i) walk(pass == Pass::forward ? i : count - 1 - i, pass);
}

void Lowering::walk(int node, Pass pass) {
  try {
    pass == Pass::forward ? forward(node) : backward(node);
  } catch (const dnnl::error& error) {  // no std::runtime_error, and names no layer
    throw std::runtime_error("oneDNN cannot compute " + graph.node(node).name + " in " +
                             to_string(options.precision) + ": " + error.what());
  }
}

void Lowering::forward(int i) {
  const Rule& rule = rule_of(graph.node(i).op);
  if (rule.fp32_alone && options.precision != Precision::fp32) {
    throw std::invalid_argument("the CPU backend computes '" + graph.node(i).name +
                                "' in fp32 alone, not in " + to_string(options.precision) +
                                ": use fp32");
  }
  if (rule.op == OpKind::boundary) return forward_boundary(i);
  if (rule.forward != nullptr) rule.forward(*this, i);
}

void Lowering::backward(int i) {
  const Rule& rule = rule_of(graph.node(i).op);
  if (rule.op == OpKind::boundary) return backward_boundary(i);
  if (rule.op == OpKind::relu) return backward_relu(*this, i);
  if (rule.backward == nullptr) return;
  if (Tensor* dy = gradient_of(i)) rule.backward(*this, i, dy);
}

Tensor* Lowering::tensor(const Desc& desc, Region region, int64_t offset_bytes) {
  return &step.tensors.emplace_back(
      Tensor{dnnl::memory(desc, engine, DNNL_MEMORY_NONE), region, offset_bytes});
}

Tensor* Lowering::view(Tensor* whole, const Desc& desc, int64_t offset_bytes) {
  Tensor* shown = tensor(desc, whole->region, offset_bytes);
  shown->whole = whole;
  return shown;
}

Dims Lowering::dims(int node) const {
  const Shape& shape = graph.node(node).shape;
  return {options.batch_size, shape.channels, shape.height, shape.width};
}

double Lowering::flops(int node) const {
  return graph.forward_flops(graph.node(node)) * static_cast<double>(options.batch_size);
}

std::string Lowering::key(const std::string& what, int node) const {
  const auto text = [](const Shape& shape) {
    return std::to_string(shape.channels) + "x" + std::to_string(shape.height) + "x" +
           std::to_string(shape.width);
  };
  const Node& n = graph.node(node);
  std::string key = what + " n" + std::to_string(options.batch_size) + " " +
                    text(graph.input_shape(n)) + " to " + text(n.shape);
  if (n.op == OpKind::conv || n.op == OpKind::max_pool) {
    key += " k" + std::to_string(n.window.kernel) + " s" + std::to_string(n.window.stride) + " p" +
           std::to_string(n.window.padding);
  }
  return key + " " + to_string(options.precision);
}

Operation& Lowering::emit(const std::string& name, Phase phase, const std::string& implementation,
                          std::vector<Tensor*> operands, std::function<void()> run) {
  std::erase(operands, nullptr);
  double bytes = 0;
  for (const Tensor* operand : operands) bytes += static_cast<double>(operand->bytes());
  return step.operations.emplace_back(Operation{.name = name,
                                                .phase = phase,
                                                .implementation = implementation,
                                                .bytes = bytes,
                                                .operands = std::move(operands),
                                                .run = std::move(run)});
}

Tensor* Lowering::reordered(const std::string& name, Phase phase, Tensor* from,
                            const Desc& wanted) {
  if (from->desc() == wanted) return from;
  Tensor* to = tensor(wanted);
  reorder_into(name, phase, from, to);
  return to;
}

void Lowering::reorder_into(const std::string& name, Phase phase, Tensor* from, Tensor* to) {
  const dnnl::reorder::primitive_desc desc(engine, from->desc(), engine, to->desc(), attributes);
  emit<dnnl::reorder>(name + " reorder", phase, "", desc,
                      {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

void Lowering::define_parameter(int parameter, const Desc& desc) {
  ParameterSlice& slice = step.slices[parameter];
  if (slice.value != nullptr) return;  // by the first micro-batch
  const Desc master = with_type(desc, dnnl::memory::data_type::f32);
  slice.value = tensor(master, Region::values);
  if (!options.forward_only) slice.gradient = tensor(master, Region::gradients);
  if (desc != master) slice.copy = tensor(desc, Region::copies);
}

Tensor* Lowering::vector_operand(int parameter) {
  define_parameter(parameter, fp32_vector(graph.parameters()[parameter].size));
  return operand(parameter);
}

Tensor* Lowering::operand(int parameter) const {
  const ParameterSlice& slice = step.slices[parameter];
  return slice.copy != nullptr ? slice.copy : slice.value;
}

Tensor* Lowering::gradient_target(int parameter, const Desc& desc) {
  Tensor* stored = gradient(parameter);
  return stored->desc() == desc ? stored : tensor(desc);
}

void Lowering::store_gradient(const std::string& name, int parameter, Tensor* gradient) {
  Tensor* stored = step.slices[parameter].gradient;
  if (gradient != stored) reorder_into(name, Phase::backward, gradient, stored);
}

Tensor* Lowering::value(int node) {
  if (tensors.values[node] == nullptr) {
    if (!graph.is(node, OpKind::input)) throw std::logic_error("a node reads a later one");
    tensors.values[node] = tensor({dims(node), type, dnnl::memory::format_tag::nchw});
  }
  return tensors.values[node];
}

void Lowering::emit_sum(const std::string& name, Phase phase, Tensor* left, Tensor* right,
                        bool relu, Tensor* out) {
  const int64_t elements = out->bytes() / element_bytes(options.precision);
  emit(name, phase, "own loop", {left, right, out}, [=, precision = options.precision] {
    add(precision, left->data(), right->data(), relu, out->data(), elements);
  });
}

void Lowering::add_gradient(int node, Tensor* gradient) {
  tensors.gradients[node].push_back(
      reordered(graph.node(node).name, Phase::backward, gradient, value(node)->desc()));
}

Tensor* Lowering::gradient_of(int node) {
  std::vector<Tensor*>& parts = tensors.gradients[node];
  while (parts.size() > 1) {
    Tensor* left = parts[parts.size() - 2];
    Tensor* right = parts.back();
    Tensor* sum = tensor(left->desc());
    emit_sum(graph.node(node).name + " gradients", Phase::backward, left, right, false, sum);
    parts.pop_back();
    parts.back() = sum;
  }
  return parts.empty() ? nullptr : parts.front();
}

Tensor* Lowering::loss_gradient(int logits, const Desc& desc) {
  if (options.forward_only) return nullptr;
  return tensors.gradients[logits].emplace_back(tensor(desc));
}

// Last layer first: the order in which the backward pass completes gradients.
void Lowering::place_parameters() {
  int64_t elements = 0;
  for (auto slice = step.slices.rbegin(); slice != step.slices.rend(); ++slice) {
    const auto place = [&](Tensor* tensor, int64_t size) {
      if (tensor != nullptr) tensor->offset_bytes = elements * size;
    };
    place(slice->value, 4);
    place(slice->gradient, 4);
    place(slice->copy, 2);
    elements += round_up(slice->value->bytes(), slice_alignment) / 4;
  }
  step.bytes(Region::values) = 4 * elements;
  step.bytes(Region::gradients) = options.forward_only ? 0 : 4 * elements;
  step.bytes(Region::copies) = type != dnnl::memory::data_type::f32 ? 2 * elements : 0;
}

void Lowering::place_step() {
  const int last = static_cast<int>(step.operations.size()) - 1;
  std::map<const Tensor*, BufferLife> found;
  for (int k = 0; k <= last; ++k) {
    for (const Tensor* operand : step.operations[k].operands) {
      if (operand->whole != nullptr) operand = operand->whole;
      if (operand->region != Region::step) continue;
      BufferLife& life =
          found.try_emplace(operand, BufferLife{operand->bytes(), k, k}).first->second;
      life.last_use = k;
    }
  }
  for (const LoweredEvent& event : step.events) {
    if (event.images == nullptr) continue;
    BufferLife& life = found[event.images];
    if (kept_.size() == 1) {
      life = {event.images->bytes(), 0, last};  // they stay from step to step
    } else {
      life.first_use = static_cast<int>(event.begin);  // where they are copied to
    }
  }
  std::vector<BufferLife> lives;
  std::vector<Tensor*> placed;
  for (Tensor& tensor : step.tensors) {
    const auto life = found.find(&tensor);
    if (life == found.end()) continue;
    placed.push_back(&tensor);
    lives.push_back(life->second);
  }
  const MemoryPlan plan = plan_memory(lives);
  for (size_t i = 0; i < placed.size(); ++i) placed[i]->offset_bytes = plan.offsets[i];
  step.bytes(Region::step) = plan.total_bytes;
}

// Row by row, as both sides understand it, whatever layouts their kernels take. What a linear layer
// leaves has two dimensions here.
Tensor* Lowering::boundary_tensor(int boundary) {
  int source = boundary;
  while (!graph.node(source).inputs.empty() && !graph.node(source).parameters.size() &&
         graph.node(source).op != OpKind::max_pool &&
         graph.node(source).op != OpKind::global_average_pool) {
    source = graph.node(source).inputs[0];
  }
  if (!graph.is(source, OpKind::linear)) {
    // Tokens as they lie: their features innermost.
    const bool tokens = graph.node(boundary).shape.width == 1;
    return tensor({dims(boundary), type,
                   tokens ? dnnl::memory::format_tag::nhwc : dnnl::memory::format_tag::nchw});
  }
  const Dims rows{options.batch_size, graph.node(boundary).shape.channels};
  return tensor({rows, type, dnnl::memory::format_tag::nc});
}

Tensor* Lowering::transferred(Transfer transfer) {
  if (transfer == Transfer::send_value) return tensors.values.back();
  if (transfer == Transfer::send_gradient) return tensors.gradients.front().front();
  const bool value = transfer == Transfer::receive_value;
  return boundary_tensor(value ? 0 : static_cast<int>(graph.nodes().size()) - 1);
}

void Lowering::emit_transfer(const StepEvent& event) {
  const Transfer transfer = event.transfer;
  const bool starts = event.kind == StepEventKind::start_transfer;
  const bool value = transfer == Transfer::receive_value || transfer == Transfer::send_value;
  if (starts) boundary(transfer) = transferred(transfer);
  Tensor* data = boundary(transfer);
  emit(std::string(to_string(event.kind)) + " " + to_string(transfer),
       value ? Phase::forward : Phase::backward, "transfer", {data},
       [=, micro_batch = micro_batch, &stage = state.stage] {
         if (stage.links == nullptr) throw std::logic_error("the stage has no neighbours");
         const double begin = steady_seconds();
         if (starts) {
           stage.links->start(transfer, micro_batch, data->data(), data->bytes(), nullptr);
         } else {
           stage.links->finish(transfer, micro_batch, nullptr);
         }
         const double seconds = steady_seconds() - begin;
         if (is_receive(transfer)) stage.seconds.waiting += seconds;
         // The start of a send is a part of its task.
         if (!is_receive(transfer) && !starts) stage.seconds.sending += seconds;
       });
}

void Lowering::emit_mark(const StepEvent& event) {
  emit(to_string(event.kind), Phase::forward, "mark", {}, [event, &stage = state.stage] {
    const double now = steady_seconds();
    if (event.kind == StepEventKind::begin_pipeline) {
      stage.seconds = {};
      stage.begin_seconds = now;
      return;
    }
    TaskMark& mark = stage.marks[event.task];
    if (event.kind == StepEventKind::begin_task) {
      mark.begin_seconds = now;
      return;
    }
    mark.end_seconds = now;
    const bool forward = mark.task.pass == Pass::forward;
    (forward ? stage.seconds.forward : stage.seconds.backward) += now - mark.begin_seconds;
  });
}

void Lowering::forward_boundary(int i) {
  tensors.values[i] = i == 0
                          ? boundary(Transfer::receive_value)
                          : reordered(graph.node(i).name, Phase::forward,
                                      value(graph.node(i).inputs[0]), boundary_tensor(i)->desc());
}

void Lowering::backward_boundary(int i) {
  if (i > 0) {
    add_gradient(graph.node(i).inputs[0], boundary(Transfer::receive_gradient));
  } else {
    gradient_of(i);  // their sum is what is sent
  }
}

LoweredStep lower(const Graph& graph, const ProgramOptions& options, const dnnl::engine& engine,
                  StepState& state) {
  return Lowering(graph, options, engine, state).run();
}

}  // namespace nearmetal::cpu
