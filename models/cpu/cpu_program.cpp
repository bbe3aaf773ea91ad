#include "models/cpu/cpu_program.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <stdexcept>

#include "base/errors.h"
#include "models/cpu/lowering.h"
#include "models/load_module.h"
#include "models/synthetic.h"
#include "models/training_options.h"

namespace nearmetal::cpu {
namespace {

using dnnl::memory;

constexpr int64_t largest_batch_size = 65535;

// The options with the number of threads decided. Throws std::invalid_argument for what this
// machine cannot do.
ProgramOptions complete(ProgramOptions options) {
  require_sizes(options);
  if (options.batch_size > largest_batch_size) {
    throw std::invalid_argument("the CPU backend takes batch sizes up to " +
                                std::to_string(largest_batch_size));
  }
  if (options.precision != Precision::fp32 && options.precision != Precision::bf16) {
    throw std::invalid_argument("the CPU backend computes in fp32 or bf16, not in " +
                                std::string(to_string(options.precision)));
  }
  if (options.precision == Precision::bf16 && !trains_bf16()) {
    throw std::invalid_argument(
        "bf16 on a CPU needs AVX-512 with byte and word instructions (avx512_core); oneDNN found " +
        describe_host().compute_capability + " here: use fp32");
  }
  if (options.threads < 0)
    throw std::invalid_argument("the number of threads must not be negative");
  if (options.threads == 0) options.threads = usable_threads();
  return options;
}

// Bytes of the gradients in the type in which they travel; 0 where that is their own.
int64_t sent_gradient_bytes(const LoweredStep& step, const ProgramOptions& options) {
  const Precision type = options.gradient_type.value_or(Precision::fp32);
  if (type == Precision::fp32 || options.forward_only) return 0;
  return step.bytes(Region::gradients) / 4 * element_bytes(type);
}

// Bytes of the images of all micro-batches, where they are copied to where they are read.
int64_t host_image_bytes(const LoweredStep& step, const ProgramOptions& options) {
  if (step.images == nullptr) return 0;
  const bool in_place = options.input == Input::device && options.micro_batches == 1;
  return in_place ? 0 : options.micro_batches * step.images->bytes();
}

int64_t bytes_of(const LoweredStep& step, const ProgramOptions& options) {
  int64_t bytes = step.total_bytes() + 4 * step.statistics_elements();  // running ones as well
  bytes += step.bytes(Region::gradients);                               // momentum
  if (is_adamw(options)) bytes += step.bytes(Region::gradients);        // second moments
  bytes += sent_gradient_bytes(step, options);
  if (options.micro_batches > 1) bytes += step.bytes(Region::gradients);  // their sum
  return bytes + host_image_bytes(step, options);
}

int64_t bytes_needed(const Graph& graph, const ProgramOptions& options) {
  StepState state;
  const ProgramOptions completed = complete(options);
  omp_set_num_threads(completed.threads);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return bytes_of(lower(graph, completed, engine, state), completed);
}

// The largest batch of such a program that takes no more memory; 0 if not even one image fits.
int64_t largest_batch(const Graph& graph, const ProgramOptions& options, int64_t available_bytes) {
  ProgramOptions tried = options;
  const auto fits = [&](int64_t batch) {
    tried.batch_size = batch;
    return bytes_needed(graph, tried) <= available_bytes;
  };
  int64_t good = 0, bad = 1;
  while (bad <= largest_batch_size && fits(bad)) {
    good = bad;
    bad *= 2;
  }
  return largest_fitting(good, std::min(bad, largest_batch_size + 1), fits);
}

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
  put_events_in_order();
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
  if (!options_.pipeline.is_pipelined()) return;
  for (const StageTask& task : options_.tasks()) state_.stage.marks.push_back({.task = task});
}

FlatGradient CpuProgram::flat_gradient() const {
  return {.computed = region(Region::gradients),
          .sent = region(Region::gradients),
          .sum_before = static_cast<const float*>(sum_before_.get()),
          .micro_batches = options_.micro_batches};
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

std::vector<GradientPlace> CpuProgram::gradient_places() const {
  std::vector<GradientPlace> places;
  for (const ParameterSlice& slice : step_.slices) {
    const Tensor& gradient = *slice.gradient;
    places.push_back(
        {gradient.offset_bytes / 4, gradient.bytes() / 4, layout_text(gradient.desc())});
  }
  return places;
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
  auto& [squares, loss] = state_.sums;
  loss = std::accumulate(state_.losses.begin(), state_.losses.end(), 0.0);
  squares = 0;
  if (!options_.forward_only) {
    squares =
        square_sum(region(Region::gradients), step_.bytes(Region::gradients) / 4, partial_sums_);
  }
  if (!options_.pipeline.is_pipelined()) take_sums();
}

void CpuProgram::take_sums() {
  const auto [squares, loss] = state_.sums;
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
  const auto part = [&](int64_t first, int64_t elements) {
    auto* copies = static_cast<uint16_t*>(regions_[static_cast<size_t>(Region::copies)].get());
    return UpdateOperands{.values = region(Region::values) + first,
                          .momentum = static_cast<float*>(momentum_.get()) + first,
                          .second_moments = static_cast<float*>(second_moments_.get()) + first,
                          .gradients = region(Region::gradients) + first,
                          .copies = step_.bytes(Region::copies) > 0 ? copies + first : nullptr,
                          .elements = elements,
                          .inverse_scale = inverse_scale_};
  };
  if (!is_adamw(options_)) {
    return sgd_update(options_.optimizer, part(0, step_.bytes(Region::values) / 4));
  }
  const AdamwStep step = adamw_step(options_.optimizer.learning_rate, updates_);
  for (size_t i = 0; i < step_.slices.size(); ++i) {
    OptimizerOptions options = options_.optimizer;
    if (!graph_.parameters()[i].is_matrix()) options.weight_decay = 0;
    const Tensor& slice = *step_.slices[i].value;
    adamw_update(options, step, part(slice.offset_bytes / 4, slice.bytes() / 4));
  }
}

void CpuProgram::enqueue_step() {
  use_threads();
  state_.exposed_communication_seconds = 0;
  const double begin = last_end_seconds_.value_or(steady_seconds());
  for (const Operation& operation : step_.operations) operation.run();
  ++steps_;
  last_end_seconds_ = steady_seconds();
  record_.seconds = *last_end_seconds_ - begin;
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
  last_end_seconds_.reset();
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

void CpuProgram::draw_labels() {
  if (!fixed_labels_.empty()) {
    std::copy(fixed_labels_.begin(), fixed_labels_.end(), state_.labels.begin());
    return;
  }
  const uint64_t seed = label_seed(options_.data_seed);
  for (size_t i = 0; i < state_.labels.size(); ++i) {
    state_.labels[i] = label_at(seed, static_cast<uint64_t>(steps_), i, graph_.classes());
  }
}

void CpuProgram::draw_tokens() {
  if (!fixed_tokens_.empty()) {
    std::copy(fixed_tokens_.begin(), fixed_tokens_.end(), state_.tokens.begin());
    return;
  }
  fill_tokens(options_.data_seed, static_cast<uint64_t>(steps_), graph_.node(0).vocabulary,
              state_.tokens);
}

void CpuProgram::set_images(std::span<const float> images) {
  if (graph_.receives()) return;  // the first stage has them
  const dnnl::memory::desc canonical = canonical_desc(step_.images->desc());
  const int64_t elements = options_.batch_size * graph_.image().elements();
  for (int64_t i = 0; i < options_.micro_batches; ++i) {
    float* source = const_cast<float*>(images.data()) + i * elements;
    reorder({canonical, engine_, source}, step_.images->memory, stream_);
    if (host_images_ == nullptr) return;
    parallel_copy(host_images_of(i), step_.images->data(), step_.images->bytes());
  }
}

void CpuProgram::use_batch(std::span<const float> images, std::span<const int32_t> labels) {
  if (graph_.reads_tokens()) throw std::logic_error("it reads tokens");
  use_threads();
  set_images(images);
  fixed_labels_.assign(labels.begin(), labels.end());
}

void CpuProgram::use_sequences(std::span<const int32_t> tokens, std::span<const int32_t> labels) {
  if (!graph_.reads_tokens() && !graph_.receives()) throw std::logic_error("it reads images");
  if (graph_.reads_tokens()) fixed_tokens_.assign(tokens.begin(), tokens.end());
  fixed_labels_.assign(labels.begin(), labels.end());
}

void CpuProgram::use_synthetic_batch() {
  use_threads();
  fixed_labels_.clear();
  fixed_tokens_.clear();
  if (graph_.receives() || graph_.reads_tokens()) return;
  std::vector<float> images(options_.step_images() * graph_.image().elements());
  fill_images(options_.data_seed, images.data(), static_cast<int64_t>(images.size()));
  set_images(images);
}

int64_t CpuProgram::device_bytes() const { return bytes_of(step_, options_); }

int64_t CpuProgram::device_bytes_by(Schedule schedule) const {
  if (schedule == options_.pipeline.schedule) return device_bytes();
  ProgramOptions options = options_;
  options.pipeline.schedule = schedule;
  return bytes_needed(graph_, options);
}

void CpuProgram::check_memory() const {
  const int64_t available = available_memory_bytes();
  require_memory(options_, device_bytes(), available, "memory",
                 [&] { return largest_batch(graph_, options_, available); });
}

std::vector<KernelChoice> CpuProgram::kernel_choices() const {
  std::map<std::string, std::string> found;
  for (const Operation& operation : step_.operations) {
    if (!operation.key.empty()) found.emplace(operation.key, operation.implementation);
  }
  std::vector<KernelChoice> choices;
  for (const auto& [key, implementation] : found)
    choices.push_back({key, implementation, 0, Unknown{"oneDNN chooses it, untimed"}});
  return choices;
}

Profile CpuProgram::profile(int repeats, bool with_ceilings) {
  use_threads();
  std::vector<std::vector<double>> seconds(step_.operations.size());
  const bool is_alone = ranks_ == 1 && !options_.pipeline.is_pipelined();  // none waits for it
  for (int run = 0; run < repeats; ++run) {
    for (size_t i = 0; i < step_.operations.size(); ++i) {
      if (is_alone) throw_if_stopped(*options_.stop);
      const double begin = steady_seconds();
      step_.operations[i].run();
      seconds[i].push_back(steady_seconds() - begin);
    }
  }
  Profile profile;
  for (size_t i = 0; i < step_.operations.size(); ++i) {
    const Operation& operation = step_.operations[i];
    profile.entries.push_back({operation.name, operation.phase, operation.implementation,
                               median_of(seconds[i]), operation.flops, operation.bytes});
  }
  if (!with_ceilings) return profile;
  const Probe copy = host_copy_probe(), product = host_product_probe(options_.precision);
  profile.copy_bytes_per_second = copy.bytes / median_seconds(copy, 5);
  profile.matrix_flops_per_second = product.flops / median_seconds(product, 5);
  return profile;
}

std::vector<Probe> CpuProgram::probes() {
  use_threads();
  std::vector<Probe> probes;
  for (const Operation& operation : step_.operations) {
    probes.push_back({.name = step_probe_name(to_string(operation.phase), operation.name),
                      .work = operation.implementation,
                      .bytes = operation.bytes,
                      .flops = operation.flops,
                      .start = timed_again_and_again(operation.run)});
  }
  return probes;
}

namespace {

class CpuBackend : public Backend {
 public:
  DeviceInfo describe(int /*gpu*/) override { return describe_host(); }

  void take_share(int /*gpu*/, const GpuShare& /*part*/) override {
    throw NotSupported("only a GPU has parts");
  }

  std::unique_ptr<Program> prepare(const Graph& graph, const ProgramOptions& options) override {
    return std::make_unique<CpuProgram>(graph, options);
  }

  int64_t bytes_needed(const Graph& graph, const ProgramOptions& options) override {
    return cpu::bytes_needed(graph, options);
  }

  int64_t largest_batch(const Graph& graph, const ProgramOptions& options) override {
    return cpu::largest_batch(graph, options, available_memory_bytes());
  }

  std::vector<Probe> probes(int /*gpu*/) override { return host_probes(); }
};

}  // namespace
}  // namespace nearmetal::cpu

NM_EXPORT nearmetal::Backend* nearmetal_backend() {
  static nearmetal::cpu::CpuBackend backend;
  return &backend;
}
