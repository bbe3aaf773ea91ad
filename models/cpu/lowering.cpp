#include "models/cpu/lowering.h"

#include <algorithm>
#include <array>
#include <map>
#include <stdexcept>
#include <utility>

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

}  // namespace

Lowering::Lowering(const Graph& graph, const ProgramOptions& options, const dnnl::engine& engine,
                   StepState& state)
    : graph_(graph),
      options_(options),
      engine_(engine),
      state_(state),
      type_(data_type(options.precision)) {
  attributes_.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  step_.slices.resize(graph.parameters().size());
}

LoweredStep Lowering::run() {
  const int64_t own = options_.pipeline.is_pipelined() ? options_.micro_batches : 1;
  const size_t nodes = graph_.nodes().size();
  kept_.assign(own, {std::vector<Tensor*>(nodes),
                     std::vector<Tensor*>(nodes),
                     std::vector<std::vector<Tensor*>>(nodes),
                     {}});
  boundary_.resize(own);
  const StepFacts facts{.pipeline = options_.pipeline,
                        .micro_batches = options_.micro_batches,
                        .trainable = graph_.is_trainable(),
                        .forward_only = options_.forward_only};
  for (const StepEvent& event : step_order(facts)) lower_event(event);
  place_parameters();
  place_step();
  return std::move(step_);
}

void Lowering::lower_event(const StepEvent& event) {
  LoweredEvent lowered{.event = event, .begin = step_.operations.size()};
  if (event.micro_batch >= std::ssize(kept_)) {  // the first micro-batch has had such an event
    lowered = *std::ranges::find(step_.events, event.kind,
                                 [](const LoweredEvent& e) { return e.event.kind; });
    lowered.event = event;
    step_.events.push_back(lowered);
    return;
  }
  micro_batch_ = static_cast<int>(event.micro_batch);
  std::swap(tensors_, kept_[micro_batch_]);
  switch (event.kind) {
    case StepEventKind::forward:
      lower_pass(Pass::forward);
      update_statistics();
      if (!graph_.receives()) lowered.images = tensors_.values[0];
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
  std::swap(tensors_, kept_[micro_batch_]);
  lowered.end = step_.operations.size();
  if (step_.images == nullptr) step_.images = lowered.images;
  step_.events.push_back(lowered);
}

void Lowering::lower_pass(Pass pass) {
  const int count = static_cast<int>(graph_.nodes().size());
  for (int i = 0; i < count; ++i) walk(pass == Pass::forward ? i : count - 1 - i, pass);
}

void Lowering::walk(int node, Pass pass) {
  try {
    pass == Pass::forward ? forward(node) : backward(node);
  } catch (const dnnl::error& error) {  // no std::runtime_error, and names no layer
    throw std::runtime_error("oneDNN cannot compute " + graph_.node(node).name + " in " +
                             to_string(options_.precision) + ": " + error.what());
  }
}

const Lowering::Rule& Lowering::rule_of(OpKind op) {
  using L = Lowering;
  static constexpr std::array rules = {
      Rule{OpKind::input},
      Rule{OpKind::token_ids},  // no tensor: they lie in the state
      Rule{OpKind::embedding, &L::forward_embedding, &L::backward_embedding, true},
      Rule{OpKind::conv, &L::forward_convolution, &L::backward_convolution},
      Rule{OpKind::batch_norm, &L::forward_norm, &L::backward_norm},
      Rule{OpKind::layer_norm, &L::forward_layer_norm, &L::backward_layer_norm, true},
      Rule{OpKind::relu, &L::forward_relu},
      Rule{OpKind::gelu, &L::forward_gelu, &L::backward_gelu, true},
      Rule{OpKind::add, &L::forward_add, &L::backward_add},
      Rule{OpKind::token_linear, &L::forward_linear, &L::backward_linear, true},
      Rule{OpKind::attention, &L::forward_attention, &L::backward_attention, true},
      Rule{OpKind::class_token, &L::forward_class_token, &L::backward_class_token, true},
      Rule{OpKind::positions, &L::forward_positions, &L::backward_positions, true},
      Rule{OpKind::select_token, &L::forward_select_token, &L::backward_select_token, true},
      Rule{OpKind::max_pool, &L::forward_pool, &L::backward_pool},
      Rule{OpKind::global_average_pool, &L::forward_pool, &L::backward_pool},
      Rule{OpKind::linear, &L::forward_linear, &L::backward_linear},
      Rule{OpKind::softmax_cross_entropy, &L::forward_loss},  // with its gradient
      Rule{OpKind::span_loss, &L::forward_span_loss, nullptr, true},
      Rule{OpKind::boundary, &L::forward_boundary},
  };
  static_assert(rules.size() == names_of(OpKind{}).size());
  return *std::ranges::find(rules, op, &Rule::op);
}

void Lowering::forward(int i) {
  const Rule& rule = rule_of(graph_.node(i).op);
  if (rule.fp32_alone && options_.precision != Precision::fp32) {
    throw std::invalid_argument("the CPU backend computes '" + graph_.node(i).name +
                                "' in fp32 alone, not in " + to_string(options_.precision) +
                                ": use fp32");
  }
  if (rule.forward != nullptr) (this->*rule.forward)(i);
}

void Lowering::backward(int i) {
  const Rule& rule = rule_of(graph_.node(i).op);
  if (rule.op == OpKind::boundary) return backward_boundary(i);
  if (rule.op == OpKind::relu) return backward_relu(i);
  if (rule.backward == nullptr) return;
  if (Tensor* dy = gradient_of(i)) (this->*rule.backward)(i, dy);
}

Tensor* Lowering::tensor(const Desc& desc, Region region, int64_t offset_bytes) {
  return &step_.tensors.emplace_back(
      Tensor{dnnl::memory(desc, engine_, DNNL_MEMORY_NONE), region, offset_bytes});
}

Tensor* Lowering::view(Tensor* whole, const Desc& desc, int64_t offset_bytes) {
  Tensor* shown = tensor(desc, whole->region, offset_bytes);
  shown->whole = whole;
  return shown;
}

Lowering::Dims Lowering::dims(int node) const {
  const Shape& shape = graph_.node(node).shape;
  return {options_.batch_size, shape.channels, shape.height, shape.width};
}

double Lowering::flops(int node) const {
  return graph_.forward_flops(graph_.node(node)) * static_cast<double>(options_.batch_size);
}

std::string Lowering::key(const std::string& what, int node) const {
  const auto text = [](const Shape& shape) {
    return std::to_string(shape.channels) + "x" + std::to_string(shape.height) + "x" +
           std::to_string(shape.width);
  };
  const Node& n = graph_.node(node);
  std::string key = what + " n" + std::to_string(options_.batch_size) + " " +
                    text(graph_.input_shape(n)) + " to " + text(n.shape);
  if (n.op == OpKind::conv || n.op == OpKind::max_pool) {
    key += " k" + std::to_string(n.window.kernel) + " s" + std::to_string(n.window.stride) + " p" +
           std::to_string(n.window.padding);
  }
  return key + " " + to_string(options_.precision);
}

Operation& Lowering::emit(const std::string& name, Phase phase, const std::string& implementation,
                          std::vector<Tensor*> operands, std::function<void()> run) {
  std::erase(operands, nullptr);
  double bytes = 0;
  for (const Tensor* operand : operands) bytes += static_cast<double>(operand->bytes());
  return step_.operations.emplace_back(Operation{.name = name,
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
  const dnnl::reorder::primitive_desc desc(engine_, from->desc(), engine_, to->desc(), attributes_);
  emit<dnnl::reorder>(name + " reorder", phase, "", desc,
                      {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

void Lowering::define_parameter(int parameter, const Desc& desc) {
  ParameterSlice& slice = step_.slices[parameter];
  if (slice.value != nullptr) return;  // by the first micro-batch
  const Desc master = with_type(desc, dnnl::memory::data_type::f32);
  slice.value = tensor(master, Region::values);
  if (!options_.forward_only) slice.gradient = tensor(master, Region::gradients);
  if (desc != master) slice.copy = tensor(desc, Region::copies);
}

Tensor* Lowering::vector_operand(int parameter) {
  define_parameter(parameter, vector(graph_.parameters()[parameter].size));
  return operand(parameter);
}

Tensor* Lowering::norm_scratch(const NormExtent& extent) {
  return tensor(vector(norm_scratch_bytes(extent) / 4));
}

Tensor* Lowering::operand(int parameter) const {
  const ParameterSlice& slice = step_.slices[parameter];
  return slice.copy != nullptr ? slice.copy : slice.value;
}

Tensor* Lowering::gradient_target(int parameter, const Desc& desc) {
  Tensor* gradient = step_.slices[parameter].gradient;
  return gradient->desc() == desc ? gradient : tensor(desc);
}

void Lowering::store_gradient(const std::string& name, int parameter, Tensor* gradient) {
  Tensor* stored = step_.slices[parameter].gradient;
  if (gradient != stored) reorder_into(name, Phase::backward, gradient, stored);
}

// Last layer first: the order in which the backward pass completes gradients.
void Lowering::place_parameters() {
  int64_t elements = 0;
  for (auto slice = step_.slices.rbegin(); slice != step_.slices.rend(); ++slice) {
    const auto place = [&](Tensor* tensor, int64_t size) {
      if (tensor != nullptr) tensor->offset_bytes = elements * size;
    };
    place(slice->value, 4);
    place(slice->gradient, 4);
    place(slice->copy, 2);
    elements += round_up(slice->value->bytes(), slice_alignment) / 4;
  }
  step_.bytes(Region::values) = 4 * elements;
  step_.bytes(Region::gradients) = options_.forward_only ? 0 : 4 * elements;
  step_.bytes(Region::copies) = type_ != dnnl::memory::data_type::f32 ? 2 * elements : 0;
}

void Lowering::place_step() {
  const int last = static_cast<int>(step_.operations.size()) - 1;
  std::map<const Tensor*, BufferLife> found;
  for (int k = 0; k <= last; ++k) {
    for (const Tensor* operand : step_.operations[k].operands) {
      if (operand->whole != nullptr) operand = operand->whole;
      if (operand->region != Region::step) continue;
      BufferLife& life =
          found.try_emplace(operand, BufferLife{operand->bytes(), k, k}).first->second;
      life.last_use = k;
    }
  }
  for (const LoweredEvent& event : step_.events) {
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
  for (Tensor& tensor : step_.tensors) {
    const auto life = found.find(&tensor);
    if (life == found.end()) continue;
    placed.push_back(&tensor);
    lives.push_back(life->second);
  }
  const MemoryPlan plan = plan_memory(lives);
  for (size_t i = 0; i < placed.size(); ++i) placed[i]->offset_bytes = plan.offsets[i];
  step_.bytes(Region::step) = plan.total_bytes;
}

// Row by row, as both sides understand it, whatever layouts their kernels take. What a linear layer
// leaves has two dimensions here.
Tensor* Lowering::boundary_tensor(int boundary) {
  int source = boundary;
  while (!graph_.node(source).inputs.empty() && !graph_.node(source).parameters.size() &&
         graph_.node(source).op != OpKind::max_pool &&
         graph_.node(source).op != OpKind::global_average_pool) {
    source = graph_.node(source).inputs[0];
  }
  if (!graph_.is(source, OpKind::linear)) {
    // Tokens as they lie: their features innermost.
    const bool tokens = graph_.node(boundary).shape.width == 1;
    return tensor({dims(boundary), type_,
                   tokens ? dnnl::memory::format_tag::nhwc : dnnl::memory::format_tag::nchw});
  }
  const Dims rows{options_.batch_size, graph_.node(boundary).shape.channels};
  return tensor({rows, type_, dnnl::memory::format_tag::nc});
}

Tensor* Lowering::transferred(Transfer transfer) {
  if (transfer == Transfer::send_value) return tensors_.values.back();
  if (transfer == Transfer::send_gradient) return tensors_.gradients.front().front();
  const bool value = transfer == Transfer::receive_value;
  return boundary_tensor(value ? 0 : static_cast<int>(graph_.nodes().size()) - 1);
}

void Lowering::emit_transfer(const StepEvent& event) {
  const Transfer transfer = event.transfer;
  const bool starts = event.kind == StepEventKind::start_transfer;
  const bool value = transfer == Transfer::receive_value || transfer == Transfer::send_value;
  if (starts) boundary(transfer) = transferred(transfer);
  Tensor* data = boundary(transfer);
  emit(std::string(to_string(event.kind)) + " " + to_string(transfer),
       value ? Phase::forward : Phase::backward, "transfer", {data},
       [=, micro_batch = micro_batch_, &stage = state_.stage] {
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
  emit(to_string(event.kind), Phase::forward, "mark", {}, [event, &stage = state_.stage] {
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
  tensors_.values[i] = i == 0
                           ? boundary(Transfer::receive_value)
                           : reordered(graph_.node(i).name, Phase::forward,
                                       value(graph_.node(i).inputs[0]), boundary_tensor(i)->desc());
}

void Lowering::backward_boundary(int i) {
  if (i > 0) {
    add_gradient(graph_.node(i).inputs[0], boundary(Transfer::receive_gradient));
  } else {
    gradient_of(i);  // their sum is what is sent
  }
}

LoweredStep lower(const Graph& graph, const ProgramOptions& options, const dnnl::engine& engine,
                  StepState& state) {
  return Lowering(graph, options, engine, state).run();
}

}  // namespace nearmetal::cpu
