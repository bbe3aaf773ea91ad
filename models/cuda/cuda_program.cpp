#include "models/cuda/cuda_program.h"

#include <algorithm>

#include "models/cuda/device/device.h"
#include "models/cuda/kernels/beside_step.h"
#include "models/cuda/tuning/decide.h"
#include "models/load_module.h"
#include "models/sixteen_bits.h"

namespace nearmetal::cuda {
namespace {

template <class T>
std::vector<T> download(const void* device, int64_t count) {
  std::vector<T> host(count);
  NM_CALL(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
  return host;
}

std::vector<float> download_as_float(const void* device, int64_t count, Precision precision) {
  std::vector<float> converted(count);
  with_stored_type(precision, [&]<class T>() {
    std::ranges::transform(download<T>(device, count), converted.begin(),
                           [](T value) { return to_float(value); });
  });
  return converted;
}

double seconds_from(uint64_t begin_nanoseconds, uint64_t end_nanoseconds) {
  return 1e-9 * static_cast<double>(end_nanoseconds - begin_nanoseconds);
}

}  // namespace

CudaProgram::CudaProgram(const Graph& graph, const ProgramOptions& options, Fits)
    : graph_(graph), options_(options), multiprocessors_(use_gpu(options.gpu)) {
  stream_ = make_stream();
  cudnnHandle_t cudnn = nullptr;
  NM_CALL(cudnnCreate(&cudnn));
  cudnn_.reset(cudnn);
  NM_CALL(cudnnSetStream(cudnn, stream_.get()));
  cublas_ = make_cublas();
  choose_kernels();
}

std::vector<KernelChoice> CudaProgram::choose_kernels(const Graph& graph,
                                                      const ProgramOptions& options) {
  const Fits fits(graph, options);
  const SeparateContext context(options.gpu);
  return CudaProgram(graph, options, fits).kernel_choices();
}

CudaProgram::CudaProgram(const Graph& graph, const ProgramOptions& options)
    : CudaProgram(graph, options, Fits(graph, options)) {
  allocate();
  bind_plans();
  const unsigned wait = options_.host_sleeps ? cudaEventBlockingSync : cudaEventDefault;
  for (int i = 0; i <= steps_in_flight; ++i) step_ends_.push_back(make_event(wait));
  for (const StageTask& task : options_.tasks()) passes_.push_back(task.pass);
  use_synthetic_batch();
  if (!options_.pipeline.is_pipelined()) finish_step();
}

CudaProgram::~CudaProgram() { cudaStreamSynchronize(stream_.get()); }

void CudaProgram::choose_kernels() {
  resources_.reduction.multiprocessors = multiprocessors_;
  resources_.cudnn = cudnn_.get();
  resources_.cublas = cublas_.get();
  tuner_ = std::make_unique<Tuner>(
      TuningDevice{cudnn_.get(), cublas_.get(), stream_.get(),
                   compute_capability(options_.gpu) / 10, multiprocessors_, options_.stop},
      options_.kernel_choices, options_.kernel_choices_pinned);
  ProgramOptions pass = options_;  // micro-batches are alike
  pass.micro_batches = 1;
  choices_ = decide(graph_, pass, *tuner_);
  layout_ = flat_layout(graph_, choices_.stem);
  step_ = lower(graph_, options_, choices_, layout_, resources_);
  tuner_->choose(distinct_products(step_));
  for (const Kernel& kernel : step_.kernels) {
    if (kernel.linear) *kernel.algorithm = tuner_->algorithm(*kernel.linear);
  }
}

void CudaProgram::allocate() {
  const int64_t workspace_bytes = std::max(tuner_->largest_workspace(), product_workspace);
  persistent_ = std::make_unique<PersistentMemory>(graph_, options_, layout_, multiprocessors_,
                                                   steps_in_flight, resources_);
  activations_ = allocate_device(step_.memory.total_bytes);
  workspace_ = allocate_device(workspace_bytes);
  resources_.workspace = workspace_.get();
  device_bytes_ = persistent_->bytes() + step_.memory.total_bytes + workspace_bytes;
  for (size_t i = 0; i < step_.tensors.size(); ++i) {
    Tensor& tensor = step_.tensors[i];
    tensor.data = tensor.whole != nullptr
                      ? static_cast<char*>(tensor.whole->data) + tensor.offset_bytes
                      : static_cast<char*>(activations_.get()) + step_.memory.offsets[i];
  }
  if (options_.input == Input::device || step_.images == nullptr) return;
  host_input_.emplace(graph_, options_, step_.image_layout);
  device_bytes_ += HostInput::bytes(graph_, options_);
}

void CudaProgram::launch_step() {
  cudaStream_t stream = stream_.get();
  if (host_input_) host_input_->take(step_.images->data, stream);
  for (const Kernel& kernel : step_.kernels) kernel.launch(stream);
  // After the kernels, as the host itself takes part in copies from pageable memory.
  if (host_input_) host_input_->copy_next(stream);
}

void CudaProgram::finish_step() {
  clear();
  // Every kernel runs once before the capture: libraries load code on first use.
  launch_step();
  wait_until_idle();
  if (options_.launch_as_graph) {
    executable_ = captured(stream_.get(), [this] { launch_step(); });
    NM_CALL(cudaGraphUpload(executable_.get(), stream_.get()));
  }
  clear();
}

void CudaProgram::exchange_gradients(AllReduce& all_reduce, int64_t bucket_bytes) {
  executable_.reset();
  insert_exchange(step_, layout_, options_, resources_, all_reduce, bucket_bytes);
  resources_.ranks = all_reduce.ranks();
  finish_step();
}

std::vector<GradientPlace> CudaProgram::gradient_places() const {
  std::vector<GradientPlace> places;
  for (int i = 0; i < std::ssize(layout_.slices); ++i) {
    places.push_back({.begin = layout_.offset(i), .elements = layout_.slices[i].elements});
  }
  return places;
}

void CudaProgram::enqueue_step() {
  const auto ring = static_cast<int64_t>(step_ends_.size());
  if (enqueued_ == finished_) {
    NM_CALL(cudaEventRecord(step_ends_[enqueued_ % ring].get(), stream_.get()));
  }
  if (executable_ != nullptr) {
    NM_CALL(cudaGraphLaunch(executable_.get(), stream_.get()));
  } else {
    launch_step();
  }
  ++enqueued_;
  NM_CALL(cudaEventRecord(step_ends_[enqueued_ % ring].get(), stream_.get()));
}

StepRecord CudaProgram::wait_step() {
  const auto ring = static_cast<int64_t>(step_ends_.size());
  cudaEvent_t begin = step_ends_[finished_ % ring].get();
  cudaEvent_t end = step_ends_[(finished_ + 1) % ring].get();
  const double seconds = seconds_between(begin, end);
  const DeviceRecord record = persistent_->record(finished_);
  ++finished_;
  StepRecord result{seconds, record.loss, record.gradient_norm, record.update_skipped != 0,
                    record.exposed_communication_seconds};
  if (options_.pipeline.is_pipelined()) {
    result.pipeline = pipeline_seconds(finished_ - 1);
    result.pipeline.span -= result.exposed_communication_seconds;
  }
  return result;
}

// In the order of the stream: cudaMemcpy() may return before the data have arrived, and this stream
// does not wait for the one that it uses.
void CudaProgram::upload(void* device, const void* host, int64_t bytes) {
  NM_CALL(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_.get()));
}

void CudaProgram::wait_until_idle() { NM_CALL(cudaStreamSynchronize(stream_.get())); }

void CudaProgram::clear() {
  wait_until_idle();
  enqueued_ = finished_ = 0;
  const FlatParameters& flat = resources_.parameters;
  const int64_t bytes = layout_.elements() * static_cast<int64_t>(sizeof(float));
  for (float* values : {flat.values, flat.momentum, flat.second_moments}) {
    if (values != nullptr) NM_CALL(cudaMemsetAsync(values, 0, bytes, stream_.get()));
  }
  launch_copy_values(options_.precision, flat, stream_.get());

  std::vector<float> statistics;  // mean 0, variance 1
  for (const Node& node : graph_.nodes()) {
    if (node.op != OpKind::batch_norm) continue;
    statistics.insert(statistics.end(), node.shape.channels, 0.0f);
    statistics.insert(statistics.end(), node.shape.channels, 1.0f);
  }
  upload(resources_.running_statistics, statistics.data(),
         static_cast<int64_t>(statistics.size() * sizeof(float)));
  const auto scale = static_cast<float>(options_.loss_scale.initial);
  StepState state{};
  state.loss_scale = scale;
  state.inverse_scale = 1 / scale;
  state.learning_rate = static_cast<float>(options_.optimizer.learning_rate);
  upload(resources_.state, &state, sizeof(state));
  wait_until_idle();
}

// Parameter by parameter from where they are: a host copy of them all takes longer to write than
// the device takes to read them.
void CudaProgram::restart(std::span<const float> parameters) {
  clear();
  const FlatParameters& flat = resources_.parameters;
  std::vector<std::vector<float>> converted;  // until they are uploaded
  for (size_t i = 0; i < layout_.slices.size(); ++i) {
    const Parameter& parameter = graph_.parameters()[i];
    std::span<const float> values = parameters.subspan(parameter.offset, parameter.size);
    if (!layout_.slices[i].places.empty()) {
      values = converted.emplace_back(layout_.slices[i].to_flat(values));
    }
    upload(flat.values + layout_.offset(static_cast<int>(i)), values.data(),
           static_cast<int64_t>(values.size_bytes()));
  }
  launch_copy_values(options_.precision, flat, stream_.get());
  shorten_graph_latency(stream_.get(), compute_capability(options_.gpu));
  wait_until_idle();
}

std::vector<float> CudaProgram::canonical(const float* flat) {
  wait_until_idle();
  return layout_.to_canonical(graph_, download<float>(flat, layout_.elements()));
}

std::vector<float> CudaProgram::parameters() { return canonical(resources_.parameters.values); }

std::vector<float> CudaProgram::momentum() {
  if (options_.forward_only) return std::vector<float>(graph_.parameter_count());
  return canonical(resources_.parameters.momentum);
}

std::vector<float> CudaProgram::second_moments() {
  if (resources_.parameters.second_moments == nullptr) return {};
  return canonical(resources_.parameters.second_moments);
}

std::vector<float> CudaProgram::gradients() {
  if (options_.forward_only) return std::vector<float>(graph_.parameter_count());
  wait_until_idle();
  const FlatParameters& flat = resources_.parameters;
  std::vector<float> scaled =
      download_as_float(flat.matrix_gradients, flat.matrix_elements, options_.precision);
  const std::vector<float> vectors = download<float>(flat.vector_gradients, flat.vector_elements);
  scaled.insert(scaled.end(), vectors.begin(), vectors.end());
  const float inverse_scale = download<StepState>(resources_.state, 1)[0].inverse_scale;
  for (float& value : scaled) value *= inverse_scale;
  return layout_.to_canonical(graph_, scaled);
}

std::vector<float> CudaProgram::running_statistics() {
  wait_until_idle();
  return download<float>(resources_.running_statistics, resources_.running_statistics_count);
}

std::vector<float> CudaProgram::logits() {
  if (step_.logits == nullptr) return {};
  wait_until_idle();
  const Shape& shape = graph_.nodes().back().shape;
  const int64_t rows = options_.batch_size * shape.tokens();
  const int64_t row = step_.logits->bytes / (rows * static_cast<int64_t>(sizeof(float)));
  const std::vector<float> padded = download<float>(step_.logits->data, rows * row);
  std::vector<float> logits;
  for (int64_t i = 0; i < rows; ++i) {
    const auto first = padded.begin() + i * row;
    logits.insert(logits.end(), first, first + shape.channels);
  }
  return logits;
}

// Kernels that wait for a neighbour are launched here for the first time, by all stages.
void CudaProgram::connect_stages(StageLinks& links) {
  if (!options_.pipeline.is_pipelined()) Program::connect_stages(links);
  links.bind(static_cast<int>(options_.micro_batches));
  resources_.links = &links;
  finish_step();
}

std::vector<TaskMark> CudaProgram::task_marks() {
  if (finished_ == 0) return {};
  const std::vector<StageTask> tasks = options_.tasks();
  const auto marks = persistent_->marks(finished_ - 1);
  std::vector<TaskMark> found;
  for (size_t i = 0; i < tasks.size(); ++i) {
    found.push_back(
        {tasks[i], seconds_from(marks[0], marks[2 * i]), seconds_from(marks[0], marks[2 * i + 1])});
  }
  return found;
}

// Between two tasks a stage waits for what it receives, where it receives anything; what holds a
// transfer up is not seen from here, as transfers have streams of their own.
PipelineSeconds CudaProgram::pipeline_seconds(int64_t step) const {
  const PipelinePlace& place = options_.pipeline;
  const auto marks = persistent_->marks(step);
  const size_t tasks = (marks.size() - 2) / 2;
  PipelineSeconds seconds;
  seconds.span = seconds_from(marks[2 * tasks], marks[2 * tasks + 1]);
  uint64_t before = marks[2 * tasks];
  for (size_t i = 0; i < tasks; ++i) {
    const bool forward = passes_[i] == Pass::forward;
    const uint64_t begin = marks[2 * i], end = marks[2 * i + 1];
    (forward ? seconds.forward : seconds.backward) += seconds_from(begin, end);
    const bool receives = forward ? place.stage > 0 : place.stage + 1 < place.stages;
    if (receives) seconds.waiting += seconds_from(before, begin);
    before = end;
  }
  seconds.waiting += seconds_from(before, marks[2 * tasks + 1]);
  return seconds;
}

void CudaProgram::bind_plans() {
  for (Kernel& kernel : step_.kernels) {
    if (kernel.convolution) bind_plan(kernel, *tuner_->plan(*kernel.convolution));
    if (!kernel.attention) continue;
    const AttentionExtent& extent = kernel.attention->extent;
    const int32_t* token_counts = nullptr;
    if (masks_tokens(extent)) {
      DeviceMemory& counts = token_counts_[extent.tokens];
      if (counts == nullptr) {
        counts = make_token_counts(extent);
        device_bytes_ += extent.batch * static_cast<int64_t>(sizeof(int32_t));
      }
      token_counts = static_cast<const int32_t*>(counts.get());
    }
    bind_plan(kernel, *tuner_->plan(*kernel.attention), token_counts);
  }
}

namespace {

class CudaBackend : public Backend {
 public:
  DeviceInfo describe(int gpu) override { return describe_gpu(gpu); }

  void take_share(int gpu, const GpuShare& part) override { take_share_of_gpu(gpu, part); }

  int device_count() override {
    int count = 0;
    NM_CALL(cudaGetDeviceCount(&count));
    return count;
  }

  std::vector<KernelChoice> choose_kernels(const Graph& graph,
                                           const ProgramOptions& options) override {
    return CudaProgram::choose_kernels(graph, options);
  }

  std::unique_ptr<Program> prepare(const Graph& graph, const ProgramOptions& options) override {
    return std::make_unique<CudaProgram>(graph, options);
  }

  int64_t bytes_needed(const Graph& graph, const ProgramOptions& options) override {
    return CudaProgram::bytes_needed(graph, options);
  }

  int64_t largest_batch(const Graph& graph, const ProgramOptions& options) override {
    use_gpu(options.gpu);
    require_units(options.precision, options.gpu);
    return CudaProgram::largest_batch(graph, options, free_device_bytes());
  }

  std::vector<Probe> probes(int gpu) override { return gpu_probes(gpu); }
};

}  // namespace

}  // namespace nearmetal::cuda

NM_EXPORT nearmetal::Backend* nearmetal_backend() {
  static nearmetal::cuda::CudaBackend backend;
  return &backend;
}
