#include "models/cpu/lowering.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <stdexcept>

#include "models/cpu/lowering_state.h"
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

// By the begin of each gradient, in bytes, the last operation that writes it.
std::map<int64_t, size_t> completed_by(const LoweredStep& step) {
  std::map<int64_t, size_t> last;
  for (size_t i = 0; i < step.operations.size(); ++i) {
    for (const Tensor* operand : step.operations[i].operands) {
      if (operand->region == Region::gradients) last[operand->offset_bytes] = i;
    }
  }
  return last;
}

Operation own_operation(const std::string& name, const std::string& implementation, int64_t bytes,
                        std::function<void()> run) {
  return {.name = name,
          .phase = Phase::exchange,
          .implementation = implementation,
          .bytes = static_cast<double>(bytes),
          .run = std::move(run)};
}

// Nothing else is computed meanwhile.
Operation exposed(Operation operation, StepState& state) {
  operation.run = [&state, run = std::move(operation.run)] {
    const double begin = steady_seconds();
    run();
    state.exposed_communication_seconds += steady_seconds() - begin;
  };
  return operation;
}

// In bytes of the fp32 gradient.
std::vector<GradientBucket> memory_of(const std::vector<BucketRange>& ranges,
                                      const FlatGradient& gradient) {
  const int64_t size = element_bytes(gradient.sent_type);
  std::vector<GradientBucket> buckets;
  for (const BucketRange& range : ranges) {
    buckets.push_back({static_cast<char*>(gradient.sent) + range.begin / 4 * size,
                       (range.end - range.begin) / 4, gradient.sent_type});
  }
  return buckets;
}

// The operations for one bucket once the backward pass has completed it.
void append_start(std::vector<Operation>& operations, int number, const BucketRange& range,
                  const GradientBucket& bucket, const FlatGradient& gradient, AllReduce& all_reduce,
                  StepState& state) {
  const std::string name = "bucket " + std::to_string(number);
  if (gradient.sum_before != nullptr) {
    operations.push_back(mean_of_micro_batches(name, gradient, range.begin / 4, range.end / 4));
  }
  if (gradient.is_converted()) {
    operations.push_back(own_operation(
        name + " to " + to_string(bucket.type), "own loop", 4 * bucket.elements + bucket.bytes(),
        [from = gradient.computed + range.begin / 4, bucket] {
          convert(Precision::fp32, from, bucket.type, bucket.data, bucket.elements);
        }));
  }
  operations.push_back(
      exposed(own_operation(name, all_reduce.library(), bucket.bytes(),
                            [&all_reduce, number] { all_reduce.start(number, 1, nullptr); }),
              state));
}

// The operations that the update waits for.
std::vector<Operation> ends(const FlatGradient& gradient, int64_t elements, AllReduce& all_reduce,
                            StepState& state) {
  std::vector<Operation> operations = {
      exposed(own_operation("all buckets", all_reduce.library(), 0,
                            [&all_reduce] { all_reduce.finish(nullptr); }),
              state)};
  if (!gradient.is_converted()) return operations;
  const int64_t bytes = elements * (4 + element_bytes(gradient.sent_type));
  operations.push_back(
      exposed(own_operation(std::string("all buckets from ") + to_string(gradient.sent_type),
                            "own loop", bytes,
                            [gradient, elements] {
                              convert(gradient.sent_type, gradient.sent, Precision::fp32,
                                      gradient.computed, elements);
                            }),
              state));
  return operations;
}

}  // namespace

int64_t LoweredStep::total_bytes() const {
  return std::accumulate(region_bytes.begin(), region_bytes.end(), int64_t{0});
}

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
  const PipelinePlace& place = options_.pipeline;
  const int64_t micro_batches = place.is_pipelined() ? options_.micro_batches : 1;
  std::vector<StageTask> tasks =
      stage_tasks(place.schedule, place.stages, static_cast<int>(micro_batches), place.stage);
  if (options_.forward_only) {
    std::erase_if(tasks, [](const StageTask& task) { return task.pass == Pass::backward; });
  }
  const size_t nodes = graph_.nodes().size();
  kept_.assign(micro_batches, {std::vector<Tensor*>(nodes),
                               std::vector<Tensor*>(nodes),
                               std::vector<std::vector<Tensor*>>(nodes),
                               {}});
  boundary_.resize(micro_batches);
  for (size_t i = 0; i < tasks.size(); ++i) lower_task(tasks, i);
  place_parameters();
  place_step();
  return std::move(step_);
}

void Lowering::lower_task(const std::vector<StageTask>& tasks, size_t index) {
  const StageTask& task = tasks[index];
  const size_t begin = step_.operations.size();
  micro_batch_ = task.micro_batch;
  swap_micro_batch();
  if (options_.pipeline.is_pipelined()) begin_stage_task(tasks, index);
  const int count = static_cast<int>(graph_.nodes().size());
  if (task.pass == Pass::forward) {
    for (int i = 0; i < count; ++i) walk(i, &Lowering::forward);
    update_statistics();
  } else {
    for (int i = count - 1; i >= 0; --i) walk(i, &Lowering::backward);
  }
  if (options_.pipeline.is_pipelined()) end_stage_task(tasks, index);
  Tensor* images = task.pass == Pass::forward && !graph_.receives() ? values_[0] : nullptr;
  step_.tasks.push_back({task, begin, step_.operations.size(), images});
  if (step_.images == nullptr) step_.images = images;
  swap_micro_batch();
}

void Lowering::swap_micro_batch() {
  NodeTensors& kept = kept_[micro_batch_];
  std::swap(values_, kept.values);
  std::swap(workspaces_, kept.workspaces);
  std::swap(gradients_, kept.gradients);
  std::swap(batch_statistics_, kept.batch_statistics);
}

void Lowering::walk(int node, void (Lowering::*direction)(int)) {
  try {
    (this->*direction)(node);
  } catch (const dnnl::error& error) {  // no std::runtime_error, and names no layer
    throw std::runtime_error("oneDNN cannot compute " + graph_.node(node).name + " in " +
                             to_string(options_.precision) + ": " + error.what());
  }
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

void Lowering::define_vector(int parameter) {
  define_parameter(parameter, vector(graph_.parameters()[parameter].size));
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
  for (const LoweredTask& task : step_.tasks) {
    if (task.images == nullptr) continue;
    BufferLife& life = found[task.images];
    if (step_.micro_batches() == 1) {
      life = {task.images->bytes(), 0, last};  // they stay from step to step
    } else {
      life.first_use = static_cast<int>(task.begin);  // where they are copied to
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

LoweredStep lower(const Graph& graph, const ProgramOptions& options, const dnnl::engine& engine,
                  StepState& state) {
  return Lowering(graph, options, engine, state).run();
}

void bind_memory(LoweredStep& step, const std::array<void*, region_count>& regions,
                 const dnnl::stream& stream) {
  for (Tensor& tensor : step.tensors) {
    char* region = static_cast<char*>(regions[static_cast<size_t>(tensor.region)]);
    const int64_t whole = tensor.whole != nullptr ? tensor.whole->offset_bytes : 0;
    tensor.memory.set_data_handle(region + whole + tensor.offset_bytes);
  }
  for (Operation& operation : step.operations) {
    if (!operation.make) continue;
    operation.run = [primitive = operation.make(), arguments = operation.arguments, stream,
                     name = operation.name] {
      try {
        primitive.execute(stream, arguments);
      } catch (const dnnl::error& error) {
        throw std::runtime_error("oneDNN failed in " + name + ": " + error.what());
      }
    };
  }
}

dnnl::memory::desc canonical_desc(const dnnl::memory::desc& device) {
  const dnnl::memory::dims dims = dims_of(device);
  dnnl::memory::dims strides(dims.size(), 1);
  for (size_t i = strides.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
  return {dims, dnnl::memory::data_type::f32, strides};
}

void reorder(const dnnl::memory& from, const dnnl::memory& to, const dnnl::stream& stream) {
  dnnl::memory source = from, target = to;
  dnnl::reorder(source, target).execute(stream, source, target);
}

Operation mean_of_micro_batches(const std::string& name, const FlatGradient& gradient,
                                int64_t begin, int64_t end) {
  return own_operation(
      name + ", mean of " + std::to_string(gradient.micro_batches) + " micro-batches", "own loop",
      3 * 4 * (end - begin), [=] {
        mean_of_sums(gradient.sum_before + begin, gradient.computed + begin, gradient.micro_batches,
                     end - begin);
      });
}

void insert_exchange(LoweredStep& step, AllReduce& all_reduce, int64_t bucket_bytes,
                     const FlatGradient& gradient, StepState& state) {
  std::erase_if(step.operations, [](const Operation& o) { return o.phase == Phase::exchange; });
  const int64_t bytes = step.bytes(Region::gradients);
  const std::vector<BucketRange> ranges =
      cut_buckets(completed_by(step), bytes, bucket_bytes / element_bytes(gradient.sent_type) * 4);
  const std::vector<GradientBucket> buckets = memory_of(ranges, gradient);
  all_reduce.bind(buckets);

  std::vector<Operation> operations;
  size_t next = 0;
  for (size_t i = 0; i < step.operations.size(); ++i) {
    operations.push_back(std::move(step.operations[i]));
    for (; next < ranges.size() && ranges[next].complete_after == i; ++next) {
      append_start(operations, static_cast<int>(next), ranges[next], buckets[next], gradient,
                   all_reduce, state);
    }
  }
  const auto update = std::ranges::find(operations, Phase::update, &Operation::phase);
  std::vector<Operation> end = ends(gradient, bytes / 4, all_reduce, state);
  operations.insert(update, std::make_move_iterator(end.begin()),
                    std::make_move_iterator(end.end()));
  step.operations = std::move(operations);
}

}  // namespace nearmetal::cpu
