#include "models/cpu/cpu_program.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "models/cpu/lowering.h"
#include "models/training_options.h"

namespace nearmetal::cpu {
namespace {

using dnnl::memory;

}  // namespace

CpuProgram::CpuProgram(const Graph& graph, const ProgramOptions& options)
    : graph_(graph),
      options_(complete(options)),
      engine_(dnnl::engine::kind::cpu, 0),
      stream_(engine_) {
  use_threads();
  step_ = lower(graph_, options_, engine_, state_);
  check_pinned_plans();
  check_memory();
  allocate();
  std::array<void*, region_count> regions{};
  for (int i = 0; i < region_count; ++i) regions[i] = regions_[i].get();
  bind_memory(step_, regions, stream_);
  put_tasks_in_order();
  surround_with_input_and_update();
  use_synthetic_batch();
  restart(std::vector<float>(graph_.parameter_count()));
}

// oneDNN sizes scratchpads by the number of threads; OpenMP keeps it for each calling thread.
void CpuProgram::use_threads() const { omp_set_num_threads(options_.threads); }

void CpuProgram::allocate() {
  for (int i = 0; i < region_count; ++i) {
    regions_[i] = allocate_host(step_.region_bytes[static_cast<size_t>(i)]);
  }
  const int64_t parameters = step_.bytes(Region::values) / 4;
  if (!options_.forward_only) {
    momentum_ = allocate_host(4 * parameters);
    if (is_adamw(options_)) second_moments_ = allocate_host(4 * parameters);
    partial_sums_.resize(square_sum_parts(parameters));
    const int64_t sent = sent_gradient_bytes(step_, options_);
    if (sent > 0) sent_gradients_ = allocate_host(sent);
  }
  if (options_.micro_batches > 1) sum_before_ = allocate_host(4 * parameters);
  if (const int64_t bytes = host_image_bytes(step_, options_)) host_images_ = allocate_host(bytes);
  state_.labels.resize(options_.step_images() * graph_.labels_per_sample());
  if (graph_.reads_tokens()) {
    state_.tokens.resize(options_.step_images() * graph_.image().tokens());
  }
  state_.losses.resize(options_.step_images());
  state_.running_statistics.resize(step_.statistics_elements());
  if (options_.pipeline.is_pipelined()) state_.stage.marks.resize(step_.tasks.size());
}

FlatGradient CpuProgram::flat_gradient() const {
  return {.computed = region(Region::gradients),
          .sent = region(Region::gradients),
          .sum_before = static_cast<const float*>(sum_before_.get()),
          .micro_batches = options_.micro_batches};
}

void CpuProgram::surround_with_input_and_update() {
  const auto draw = [this](const char* name, size_t values, std::function<void()> run) {
    step_.operations.insert(step_.operations.begin(), {.name = name,
                                                       .phase = Phase::input,
                                                       .implementation = "own loop",
                                                       .bytes = 4.0 * static_cast<double>(values),
                                                       .run = std::move(run)});
  };
  if (graph_.reads_tokens()) draw("tokens", state_.tokens.size(), [this] { draw_tokens(); });
  if (!graph_.is_trainable()) return;
  if (graph_.has_loss()) draw("labels", state_.labels.size(), [this] { draw_labels(); });
  const int64_t gradient_bytes = step_.bytes(Region::gradients);
  if (sum_before_ != nullptr) {
    step_.operations.push_back(
        mean_of_micro_batches("gradients", flat_gradient(), 0, gradient_bytes / 4));
  }
  const auto bytes = static_cast<double>(gradient_bytes);
  step_.operations.push_back({.name = "loss + gradient norm",
                              .phase = Phase::update,
                              .implementation = "own loop",
                              .bytes = bytes,
                              .run = [this] { finish_step(); }});
  if (options_.forward_only) return;
  // Reads and writes the values and each moment, and reads the gradient.
  const double sweeps = is_adamw(options_) ? 7 : 5;
  step_.operations.push_back(
      {.name = to_string(options_.optimizer.kind),
       .phase = Phase::update,
       .implementation = "own loop",
       .bytes = sweeps * bytes + static_cast<double>(step_.bytes(Region::copies)),
       .run = [this] { update(); }});
}

void CpuProgram::exchange_gradients(AllReduce& all_reduce, int64_t bucket_bytes) {
  FlatGradient gradient = flat_gradient();
  if (sent_gradients_ != nullptr) {
    gradient.sent = sent_gradients_.get();
    gradient.sent_type = *options_.gradient_type;
  }
  insert_exchange(step_, all_reduce, bucket_bytes, gradient, state_);
  ranks_ = all_reduce.ranks();
}

void CpuProgram::check_pinned_plans() const {
  if (!options_.kernel_choices_pinned) return;
  std::map<std::string, std::string> pinned;
  for (const KernelChoice& plan : options_.kernel_choices) pinned[plan.key] = plan.implementation;
  for (const KernelChoice& plan : CpuProgram::kernel_choices()) {
    const auto found = pinned.find(plan.key);
    if (found == pinned.end()) {
      throw std::runtime_error("the pinned plans have none for '" + plan.key + "'");
    }
    if (found->second != plan.implementation) {
      throw std::runtime_error("the pinned plan " + found->second + " for '" + plan.key +
                               "' is not what oneDNN chooses here: " + plan.implementation);
    }
  }
}

void CpuProgram::finish_step() {
  double loss = std::accumulate(state_.losses.begin(), state_.losses.end(), 0.0);
  double squares = 0;
  if (!options_.forward_only) {
    squares =
        square_sum(region(Region::gradients), step_.bytes(Region::gradients) / 4, partial_sums_);
  }
  if (options_.pipeline.is_pipelined()) sum_over_stages(squares, loss);
  record_.loss = static_cast<float>(loss / static_cast<double>(options_.step_images()));
  const bool finite = std::isfinite(squares);
  inverse_scale_ = gradient_factor();
  record_.gradient_norm = static_cast<float>(std::sqrt(squares) * inverse_scale_);
  record_.update_skipped = !finite;
  record_.exposed_communication_seconds = state_.exposed_communication_seconds;
  if (options_.loss_scale.dynamic) adapt_loss_scale(state_.loss_scale, good_steps_, finite);
}

// The gradient that is there is a sum over ranks of what the scaled loss gives.
float CpuProgram::gradient_factor() const {
  return 1 / (state_.loss_scale * static_cast<float>(ranks_));
}

void CpuProgram::update() {
  if (record_.update_skipped) return;
  ++updates_;
  uint16_t* copies = nullptr;
  if (step_.bytes(Region::copies) > 0) {
    copies = static_cast<uint16_t*>(regions_[static_cast<size_t>(Region::copies)].get());
  }
  if (is_adamw(options_)) return update_by_adamw(copies);
  sgd_update(options_.optimizer,
             {region(Region::values), static_cast<float*>(momentum_.get()),
              region(Region::gradients), copies, step_.bytes(Region::values) / 4, inverse_scale_});
}

void CpuProgram::update_by_adamw(uint16_t* copies) {
  const AdamwStep step = adamw_step(options_.optimizer.learning_rate, updates_);
  for (size_t i = 0; i < step_.slices.size(); ++i) {
    OptimizerOptions options = options_.optimizer;
    if (!graph_.parameters()[i].is_matrix()) options.weight_decay = 0;
    const Tensor& slice = *step_.slices[i].value;
    const int64_t first = slice.offset_bytes / 4;
    adamw_update(
        options, step,
        {region(Region::values) + first, static_cast<float*>(momentum_.get()) + first,
         static_cast<float*>(second_moments_.get()) + first, region(Region::gradients) + first,
         copies != nullptr ? copies + first : nullptr, slice.bytes() / 4, inverse_scale_});
  }
}

void CpuProgram::enqueue_step() {
  using Clock = std::chrono::steady_clock;
  use_threads();
  state_.exposed_communication_seconds = 0;
  const Clock::time_point begin = last_end_.value_or(Clock::now());
  for (const Operation& operation : step_.operations) operation.run();
  ++steps_;
  last_end_ = Clock::now();
  record_.seconds = std::chrono::duration<double>(*last_end_ - begin).count();
}

void CpuProgram::restart(std::span<const float> parameters) {
  use_threads();
  // oneDNN takes no const addresses.
  const std::vector<float> values(parameters.begin(), parameters.end());
  for (size_t i = 0; i < step_.slices.size(); ++i) {
    const ParameterSlice& slice = step_.slices[i];
    float* source = const_cast<float*>(values.data()) + graph_.parameters()[i].offset;
    const memory from(canonical_desc(slice.value->desc()), engine_, source);
    reorder(from, slice.value->memory, stream_);
    if (slice.copy != nullptr) reorder(slice.value->memory, slice.copy->memory, stream_);
  }
  const int64_t elements = step_.bytes(Region::values) / 4;
  for (const HostMemory* moments : {&momentum_, &second_moments_}) {
    if (*moments != nullptr) std::fill_n(static_cast<float*>(moments->get()), elements, 0.0f);
  }
  for (const NormStatistics& norm : step_.norms) {
    auto mean = state_.running_statistics.begin() + norm.offset;
    std::fill_n(mean, norm.stride, 0.0f);
    std::fill_n(mean + norm.stride, norm.stride, 1.0f);
  }
  state_.loss_scale = static_cast<float>(options_.loss_scale.initial);
  inverse_scale_ = gradient_factor();
  steps_ = updates_ = good_steps_ = 0;
  last_end_.reset();
}

std::vector<float> CpuProgram::canonical(const float* flat) const {
  use_threads();
  std::vector<float> values(graph_.parameter_count());
  for (size_t i = 0; i < step_.slices.size(); ++i) {
    const Tensor& value = *step_.slices[i].value;
    float* source = const_cast<float*>(flat) + value.offset_bytes / 4;
    const memory from(value.desc(), engine_, source);
    const memory to(canonical_desc(value.desc()), engine_,
                    values.data() + graph_.parameters()[i].offset);
    reorder(from, to, stream_);
  }
  return values;
}

std::vector<float> CpuProgram::parameters() { return canonical(region(Region::values)); }

std::vector<float> CpuProgram::momentum() {
  if (momentum_ == nullptr) return std::vector<float>(graph_.parameter_count());
  return canonical(static_cast<const float*>(momentum_.get()));
}

std::vector<float> CpuProgram::second_moments() {
  if (second_moments_ == nullptr) return {};
  return canonical(static_cast<const float*>(second_moments_.get()));
}

std::vector<float> CpuProgram::gradients() {
  if (options_.forward_only) return std::vector<float>(graph_.parameter_count());
  std::vector<float> values = canonical(region(Region::gradients));
  for (float& value : values) value *= inverse_scale_;
  return values;
}

std::vector<float> CpuProgram::running_statistics() {
  std::vector<float> values;
  for (const NormStatistics& norm : step_.norms) {
    const auto mean = state_.running_statistics.begin() + norm.offset;
    values.insert(values.end(), mean, mean + norm.channels);
    values.insert(values.end(), mean + norm.stride, mean + norm.stride + norm.channels);
  }
  return values;
}

std::vector<float> CpuProgram::logits() {
  if (step_.logits == nullptr) return {};
  const float* values = step_.logits->floats();
  return {values, values + options_.batch_size * graph_.logits_per_sample()};
}

}  // namespace nearmetal::cpu
