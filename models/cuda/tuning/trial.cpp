#include "models/cuda/tuning/trial.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/errors.h"
#include "models/cuda/kernels/update.h"
#include "models/cuda/tuning/checks.h"
#include "models/cuda/tuning/trial_values.h"
#include "models/memory_plan.h"

namespace nearmetal::cuda {
namespace {

constexpr int64_t alignment = 1024;

// FNV-1a: the same data for the same name in every alternative.
uint64_t seed_of(const std::string& name) {
  uint64_t seed = 0xcbf29ce484222325;
  for (const char c : name) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return seed;
}

// Two kernels round their results, and what they compute these from, at so many different places;
// fp32 sums in another order differ by more than the type.
constexpr int roundings = 8;
// Second moments round what cancels in a sum over all rows.
constexpr int roundings_of_sums = 12;
double difference_of_rounding(Precision precision) {
  return std::max(rounding_of(precision), 0x1p-21);
}

// The layout of some parameters alone: the others have no place.
FlatLayout layout_of(const FlatLayout& whole, const std::set<int>& parameters) {
  FlatLayout layout = whole;
  layout.matrix_elements = layout.vector_elements = 0;
  for (size_t i = 0; i < layout.slices.size(); ++i) {
    ParameterSlice& slice = layout.slices[i];
    slice.offset = 0;
    if (!parameters.contains(static_cast<int>(i))) continue;
    int64_t& end = slice.is_matrix ? layout.matrix_elements : layout.vector_elements;
    slice.offset = end;
    end += round_up(slice.elements, alignment);
  }
  return layout;
}

std::vector<int> norms_of(const FusedOp& op) {
  std::vector<int> norms;
  for (const int norm : {op.norm.norm, op.norm.residual_norm, op.joined_norm}) {
    if (norm >= 0) norms.push_back(norm);
  }
  return norms;
}

// The parameters that an op reads or leaves a gradient of.
std::set<int> parameters_of(const FusedOp& op, const Graph& graph) {
  std::set<int> parameters(op.gradients.begin(), op.gradients.end());
  const auto add_those_of = [&](int node) {
    const std::vector<int>& own = graph.node(node).parameters;
    parameters.insert(own.begin(), own.end());
  };
  if (op.node >= 0) add_those_of(op.node);
  if (op.bias >= 0) parameters.insert(op.bias);
  for (const int norm : norms_of(op)) {
    add_those_of(norm);
    const Node& product = graph.node(graph.node(norm).inputs[0]);
    if (product.has_bias()) parameters.insert(product.parameters[1]);
  }
  return parameters;
}

}  // namespace

void* TrialMemory::take(int64_t bytes) {
  if (bytes > bytes_) {
    memory_.reset();
    memory_ = allocate_device(bytes);
    bytes_ = bytes;
  }
  return memory_.get();
}

Trial::Trial(const TrialSource& source, const Ops& ops, const OpsOfPart& part, StemForm stem,
             TrialMemory& memory)
    : source_(source), values_(ops.values), part_(part), tensors_(ops.values.size()) {
  std::set<int> parameters;
  std::set<ValueId> used;
  for (const auto* pass : {&part_.forward, &part_.backward}) {
    for (const FusedOp& op : *pass) {
      parameters.merge(parameters_of(op, source_.graph));
      for (const Operand& operand : op.operands) {
        const bool is_first = used.insert(operand.value).second;
        if (is_first && operand.access != Access::write) inputs_.emplace_back(&op, operand);
      }
    }
  }
  parameters_.assign(parameters.begin(), parameters.end());
  layout_ = layout_of(flat_layout(source_.graph, stem), parameters);
  persistent_.emplace(source_.graph, source_.options, layout_, source_.device.multiprocessors, 1,
                      resources_);
  resources_.workspace = source_.workspace;
  resources_.cudnn = source_.device.handle;
  resources_.cublas = source_.device.cublas;
  owned_.reserve(used.size());
  for (const ValueId value : used) {
    owned_.push_back({.bytes = values_[value].bytes, .offset_bytes = bytes_});
    tensors_[value] = &owned_.back();
    bytes_ += round_up(values_[value].bytes, alignment);
  }
  memory_ = memory.take(bytes_);
  for (Tensor& tensor : owned_) tensor.data = static_cast<char*>(memory_) + tensor.offset_bytes;
  make_kernels(Pass::forward, part_.forward);
  make_kernels(Pass::backward, part_.backward);
}

void Trial::make_kernels(Pass pass, const std::vector<FusedOp>& ops) {
  const Precision precision = source_.options.precision;
  const Emission emission{
      {source_.graph, source_.options.batch_size, precision}, layout_, resources_};
  for (const FusedOp& op : ops) {
    Kernel& kernel = kernels(pass).emplace_back(emit(op, emission, tensors_));
    if (kernel.launch == nullptr) source_.bind(kernel);
    if (pass == Pass::forward) add_norm_results(op);
    add_gradients(op);
    for (const Operand& operand : op.operands) {
      const Value& value = values_[operand.value];
      if (operand.access == Access::read || value.content == Content::other) continue;
      const bool of_sums = value.content == Content::channel_sums;
      results_[static_cast<size_t>(pass)][value.name] = {
          tensors_[operand.value]->data, value.bytes, value.content,
          of_sums ? Precision::fp32 : precision, roundings * difference_of_rounding(precision)};
    }
  }
}

int64_t Trial::rows(const FusedOp& op) const {
  const NodeShapes shapes{source_.graph, source_.options.batch_size, source_.options.precision};
  return shapes.extent(op.norm.conv >= 0 ? op.norm.conv : op.node).rows;
}

// A batch norm's statistics, which a wrong sum of many shows in.
void Trial::add_norm_results(const FusedOp& op) {
  if (op.norm.norm < 0) return;
  const double allowed = 0x1p-12 + 2 * difference_of_rounding(source_.options.precision) /
                                       std::sqrt(static_cast<double>(rows(op)));
  for (const int norm : {op.norm.norm, op.norm.residual_norm}) {
    if (norm < 0) continue;
    const std::string name = source_.graph.node(norm).name;
    const int64_t bytes = source_.graph.node(norm).shape.channels * float_bytes;
    const BatchNormState& state = resources_.norm(0, norm);
    const auto add = [&](const char* what, const float* data) {
      results_[0][name + what] = {data, bytes, Content::numbers, Precision::fp32, allowed};
    };
    add(" inverse deviation", state.inverse_deviation);
    add(" multiplier", state.multiplier);
    add(" shift", state.shift);
    add(" running mean", state.running_mean);
    add(" running variance", state.running_variance);
  }
}

void Trial::add_gradients(const FusedOp& op) {
  const Precision precision = source_.options.precision;
  for (const int parameter : op.gradients) {
    const ParameterSlice& slice = layout_.slices[parameter];
    const int64_t size = slice.is_matrix ? element_bytes(precision) : float_bytes;
    const FlatParameters& flat = resources_.parameters;
    const void* data =
        slice.is_matrix ? flat.gradient(slice.offset, size) : flat.vector_gradients + slice.offset;
    const double allowed =
        (slice.is_matrix ? roundings : roundings_of_sums) * difference_of_rounding(precision) +
        32 * std::sqrt(static_cast<double>(rows(op))) * 0x1p-24;
    results_[1]["gradient of " + source_.graph.parameters()[parameter].name] = {
        data, slice.elements * size, Content::numbers,
        slice.is_matrix ? precision : Precision::fp32, allowed};
  }
}

// Matrices as they start (he_normal), vectors around 1.
void Trial::fill_parameters() {
  const auto of_numbers = [&](const std::string& name, float scale, float offset, float* data,
                              int64_t elements) {
    launch_fill({Content::numbers, Precision::fp32, seed_of(name), scale, offset, 1}, data,
                elements * float_bytes, source_.device.stream);
  };
  for (const int parameter : parameters_) {
    const Parameter& of = source_.graph.parameters()[parameter];
    const int64_t terms = of.size / std::max<int64_t>(of.dims[0], 1);
    const float scale = of.is_matrix() ? std::sqrt(2 / static_cast<float>(terms)) : 0.25f;
    of_numbers(of.name, scale, of.is_matrix() ? 0 : 1,
               resources_.parameters.values + layout_.offset(parameter),
               layout_.slices[parameter].elements);
  }
  launch_copy_values(source_.options.precision, resources_.parameters, source_.device.stream);
  for (const auto* pass : {&part_.forward, &part_.backward}) {
    for (const FusedOp& op : *pass) {
      for (const int norm : norms_of(op)) {
        const Node& node = source_.graph.node(norm);
        const BatchNormState& state = resources_.norm(0, norm);
        const auto few = static_cast<float>(1 / std::sqrt(static_cast<double>(rows(op))));
        int index = 0;
        const auto of_state = [&](float* array, float scale) {
          of_numbers(node.name + " state " + std::to_string(index++), scale, 0, array,
                     node.shape.channels);
        };
        for (float* array : {state.running_mean, state.running_variance, state.mean,
                             state.inverse_deviation, state.multiplier, state.shift, state.a}) {
          of_state(array, 1);
        }
        of_state(state.b, few);
        of_state(state.c, few);
      }
    }
  }
}

void Trial::prepare() {
  cudaStream_t stream = source_.device.stream;
  // Bytes of 0xff are NaN in every type that we use.
  NM_CALL(cudaMemsetAsync(memory_, 0xff, bytes_, stream));
  const FlatParameters& flat = resources_.parameters;
  if (flat.matrix_gradients != nullptr) {
    NM_CALL(cudaMemsetAsync(flat.matrix_gradients, 0xff,
                            layout_.matrix_elements * element_bytes(source_.options.precision),
                            stream));
    NM_CALL(cudaMemsetAsync(flat.vector_gradients, 0xff, layout_.vector_elements * float_bytes,
                            stream));
  }
  fill_parameters();
  for (const auto& [op, operand] : inputs_) {
    const Value& value = values_[operand.value];
    // A mask is that of the value.
    const std::string& name = value.node < 0 ? value.name : source_.graph.node(value.node).name;
    launch_fill({value.content, source_.options.precision, seed_of(name), 1, 0, rows(*op)},
                tensors_[operand.value]->data, value.bytes, stream);
  }
}

void Trial::run(Pass pass) {
  for (const Kernel& kernel : kernels(pass)) kernel.launch(source_.device.stream);
}

double Trial::seconds() {
  throw_if_stopped(*source_.device.stop);
  const auto run_all = [&] {
    run(Pass::forward);
    run(Pass::backward);
  };
  GraphExecHandle graph;
  try {
    graph = captured(source_.device.stream, run_all);
  } catch (const CaptureRefused&) {
    return std::numeric_limits<double>::infinity();
  }
  const auto replay = [&] { NM_CALL(cudaGraphLaunch(graph.get(), source_.device.stream)); };
  return 1e-3 * milliseconds_of(replay, {.apart = 1, .timed = 3}, source_.device.stream);
}

Trial::Error Trial::worse(const Error& before, Pass pass, const Trial& reference) const {
  const Results& expected = reference.results_[static_cast<size_t>(pass)];
  Error worst = before;
  for (const auto& [name, result] : results_[static_cast<size_t>(pass)]) {
    const auto found = expected.find(name);
    if (found == expected.end()) continue;
    const Difference of = difference_between(result.content, result.precision, found->second.data,
                                             result.data, result.bytes, source_.device.stream);
    const bool of_bytes = result.content == Content::mask || result.content == Content::winners;
    const double ratio = of.squares == 0 ? 0 : of.squares / of.reference_squares;
    Error error{of_bytes ? ratio : std::sqrt(ratio), result.allowed, name};
    if (of.not_finite > 0) error.relative = std::numeric_limits<double>::infinity();
    if (worst.result.empty() || error.share() > worst.share()) worst = error;
  }
  return worst;
}

void Trial::take(Pass pass, const Trial& reference) {
  const Results& expected = reference.results_[static_cast<size_t>(pass)];
  for (const auto& [name, result] : results_[static_cast<size_t>(pass)]) {
    const auto found = expected.find(name);
    if (found == expected.end()) continue;
    NM_CALL(cudaMemcpyAsync(const_cast<void*>(result.data), found->second.data, result.bytes,
                            cudaMemcpyDeviceToDevice, source_.device.stream));
  }
}

}  // namespace nearmetal::cuda
