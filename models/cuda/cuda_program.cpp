#include "models/cuda/cuda_program.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "models/cuda/device.h"
#include "models/synthetic.h"

namespace nearmetal {
namespace {

// Buffers of one allocation, each at a multiple of 256 bytes.
class Arena {
 public:
  int64_t add(int64_t bytes) {
    const int64_t offset = bytes_;
    bytes_ += (bytes + 255) / 256 * 256;
    return offset;
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

// Offsets of what outlives a step.
struct PersistentLayout {
  Arena arena;
  int64_t values, momentum, matrix_copies, matrix_gradients, vector_gradients;
  int64_t running_statistics, norm_arrays;
  int64_t partial_sums, arrivals, finish_sums, finish_arrivals;
  int64_t state, labels, fixed_labels, use_fixed_labels, losses, stem_mask;
};

constexpr int64_t largest_batch_size = 65535;
constexpr int arrays_per_norm = 7;  // mean, inverse_deviation, multiplier, shift, a, b, c

int64_t count_norm_channels(const Graph& graph) {
  int64_t channels = 0;
  for (const Node& node : graph.nodes()) {
    if (node.op == OpKind::batch_norm) channels += node.shape.channels;
  }
  return channels;
}

PersistentLayout persistent_layout(const Graph& graph, const ProgramOptions& options,
                                   const FlatLayout& layout, int multiprocessors) {
  const int64_t size = element_bytes(options.precision), real = sizeof(float);
  const int64_t channels = count_norm_channels(graph);
  PersistentLayout at{};
  at.values = at.arena.add(layout.elements() * real);
  at.momentum = at.arena.add(layout.elements() * real);
  at.matrix_copies = at.arena.add(size < real ? layout.matrix_elements * size : 0);
  at.matrix_gradients = at.arena.add(layout.matrix_elements * size);
  at.vector_gradients = at.arena.add(layout.vector_elements * real);
  at.running_statistics = at.arena.add(2 * channels * real);
  at.norm_arrays = at.arena.add(arrays_per_norm * channels * real);
  at.partial_sums = at.arena.add(ReductionScratch::partial_sums_bytes(multiprocessors));
  at.arrivals = at.arena.add(ReductionScratch::arrivals_bytes());
  at.finish_sums = at.arena.add(finish_blocks * static_cast<int64_t>(sizeof(double)));
  at.finish_arrivals = at.arena.add(sizeof(unsigned));
  at.state = at.arena.add(sizeof(StepState));
  at.labels = at.arena.add(options.batch_size * static_cast<int64_t>(sizeof(int32_t)));
  at.fixed_labels = at.arena.add(options.batch_size * static_cast<int64_t>(sizeof(int32_t)));
  at.use_fixed_labels = at.arena.add(sizeof(int32_t));
  at.losses = at.arena.add(options.batch_size * real);
  at.stem_mask = at.arena.add(layout.slices.front().elements);
  return at;
}

// The images of a batch as a loader delivers them: NHWC without padding.
int64_t packed_image_bytes(const Graph& graph, const ProgramOptions& options) {
  return options.batch_size * graph.image().elements() * element_bytes(options.precision);
}

const Node& stem_conv(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (node.op == OpKind::conv && node.inputs[0] == 0) return node;
  }
  throw std::invalid_argument("the CUDA backend needs a convolution that reads the image");
}

void check_options(const ProgramOptions& options) {
  if (options.batch_size < 1) throw std::invalid_argument("the batch size must be at least 1");
  if (options.batch_size > largest_batch_size) {
    throw std::invalid_argument("the CUDA backend takes batch sizes up to " +
                                std::to_string(largest_batch_size));
  }
}

void check_memory(const Graph& graph, const ProgramOptions& options) {
  const int64_t needed = CudaProgram::bytes_needed(graph, options);
  size_t free = 0, total = 0;
  NM_CALL(cudaMemGetInfo(&free, &total));
  const auto available = static_cast<int64_t>(free);
  if (needed <= available) return;
  const int64_t largest = CudaProgram::largest_batch(graph, options, available);
  throw OutOfMemory("batch " + std::to_string(options.batch_size) + " needs " +
                        std::to_string(needed) + " bytes of GPU memory, " +
                        std::to_string(available) + " are free; the largest batch that fits is " +
                        std::to_string(largest),
                    needed, available, largest);
}

template <class T>
std::vector<T> download(const void* device, int64_t count) {
  std::vector<T> host(count);
  NM_CALL(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
  return host;
}

std::vector<float> download_as_float(const void* device, int64_t count, Precision precision) {
  const auto convert = [&](auto values, auto to_float) {
    std::vector<float> converted(count);
    std::transform(values.begin(), values.end(), converted.begin(), to_float);
    return converted;
  };
  switch (precision) {
    case Precision::fp16:
      return convert(download<__half>(device, count), [](__half v) { return __half2float(v); });
    case Precision::bf16:
      return convert(download<__nv_bfloat16>(device, count),
                     [](__nv_bfloat16 v) { return __bfloat162float(v); });
    default:
      return download<float>(device, count);
  }
}

}  // namespace

CudaProgram::CudaProgram(const Graph& graph, const ProgramOptions& options)
    : graph_(graph), options_(options), multiprocessors_(use_gpu(options.gpu)) {
  check_options(options_);
  check_memory(graph_, options_);
  stream_ = make_stream();
  copy_stream_ = make_stream();
  cudnnHandle_t cudnn = nullptr;
  NM_CALL(cudnnCreate(&cudnn));
  cudnn_.reset(cudnn);
  NM_CALL(cudnnSetStream(cudnn, stream_.get()));
  cublasLtHandle_t cublas = nullptr;
  NM_CALL(cublasLtCreate(&cublas));
  cublas_.reset(cublas);

  choose_kernels();
  allocate();
  bind_convolutions();
  for (int i = 0; i <= steps_in_flight; ++i) step_ends_.push_back(make_event());
  use_synthetic_batch();
  // Every kernel runs once before the capture: libraries load code on first use.
  restart(std::vector<float>(graph_.parameter_count()));
  record_step();
  wait_until_idle();
  if (options_.launch_as_graph) capture_step();
  restart(std::vector<float>(graph_.parameter_count()));
}

CudaProgram::~CudaProgram() { cudaStreamSynchronize(stream_.get()); }

void CudaProgram::choose_kernels() {
  tuner_ =
      std::make_unique<Tuner>(cudnn_.get(), stream_.get(), options_.plans, options_.plans_pinned);
  double best = std::numeric_limits<double>::infinity();
  for (const StemForm form : stem_forms(stem_conv(graph_), graph_.image())) {
    LoweringChoices choices{form, {}};
    const FlatLayout layout = flat_layout(graph_, form);
    const LoweredStep step = lower(graph_, options_, choices, layout, resources_);
    tuner_->choose(distinct_problems(step, true), multiprocessors_);
    const double seconds = tuner_->seconds_of(step);
    if (seconds >= best) continue;
    best = seconds;
    choices.fused_statistics = tuner_->faster_with_statistics(step);
    choices_ = choices;
  }
  layout_ = flat_layout(graph_, choices_.stem);
  step_ = lowered();
}

void CudaProgram::allocate() {
  const PersistentLayout at = persistent_layout(graph_, options_, layout_, multiprocessors_);
  const int64_t workspace_bytes = std::max(tuner_->largest_workspace(), classifier_workspace);
  persistent_ = allocate_device(at.arena.bytes());
  activations_ = allocate_device(step_.memory.total_bytes);
  workspace_ = allocate_device(workspace_bytes);
  NM_CALL(cudaMemset(persistent_.get(), 0, at.arena.bytes()));
  device_bytes_ = at.arena.bytes() + step_.memory.total_bytes + workspace_bytes;
  for (size_t i = 0; i < step_.tensors.size(); ++i) {
    step_.tensors[i].data = static_cast<char*>(activations_.get()) + step_.memory.offsets[i];
  }
  const auto address = [&]<class T>(int64_t offset, T*) {
    return reinterpret_cast<T*>(static_cast<char*>(persistent_.get()) + offset);
  };
  const auto reals = [&](int64_t offset) { return address(offset, static_cast<float*>(nullptr)); };
  const auto integers = [&](int64_t offset) {
    return address(offset, static_cast<int32_t*>(nullptr));
  };

  const bool copies = element_bytes(options_.precision) < 4;
  FlatParameters& flat = resources_.parameters;
  flat.matrix_elements = layout_.matrix_elements;
  flat.vector_elements = layout_.vector_elements;
  flat.values = reals(at.values);
  flat.momentum = reals(at.momentum);
  flat.matrix_copies = copies ? reals(at.matrix_copies) : nullptr;
  flat.matrix_gradients = reals(at.matrix_gradients);
  flat.vector_gradients = reals(at.vector_gradients);

  resources_.reduction = {reals(at.partial_sums),
                          address(at.arrivals, static_cast<unsigned*>(nullptr)), multiprocessors_};
  resources_.state = address(at.state, static_cast<StepState*>(nullptr));
  resources_.finish_sums = address(at.finish_sums, static_cast<double*>(nullptr));
  resources_.finish_arrivals = address(at.finish_arrivals, static_cast<unsigned*>(nullptr));
  resources_.labels = integers(at.labels);
  resources_.fixed_labels = fixed_labels_ = integers(at.fixed_labels);
  resources_.use_fixed_labels = use_fixed_labels_ = integers(at.use_fixed_labels);
  resources_.losses = reals(at.losses);
  resources_.workspace = workspace_.get();
  resources_.cublas = cublas_.get();

  running_statistics_ = reals(at.running_statistics);
  norm_channels_ = count_norm_channels(graph_);
  resources_.norms.resize(graph_.nodes().size());
  int64_t before = 0;  // channels of the batch norms before this one
  for (size_t i = 0; i < graph_.nodes().size(); ++i) {
    const Node& node = graph_.nodes()[i];
    if (node.op != OpKind::batch_norm) continue;
    const int64_t channels = node.shape.channels;
    const auto array = [&](int which) {
      return reals(at.norm_arrays) + arrays_per_norm * before + which * channels;
    };
    BatchNormState& state = resources_.norms[i];
    state.scale = flat.values + layout_.offset(node.parameters[0]);
    state.bias = flat.values + layout_.offset(node.parameters[1]);
    state.scale_gradient = flat.vector_gradients + layout_.slices[node.parameters[0]].offset;
    state.bias_gradient = flat.vector_gradients + layout_.slices[node.parameters[1]].offset;
    state.running_mean = running_statistics_ + 2 * before;
    state.running_variance = state.running_mean + channels;
    state.mean = array(0);
    state.inverse_deviation = array(1);
    state.multiplier = array(2);
    state.shift = array(3);
    state.a = array(4);
    state.b = array(5);
    state.c = array(6);
    before += channels;
  }

  const ParameterSlice& stem = layout_.slices[stem_conv(graph_).parameters[0]];
  std::vector<uint8_t> mask(stem.elements, 0);
  for (const int64_t place : stem.places) mask[place] = 1;
  auto* stem_mask = address(at.stem_mask, static_cast<uint8_t*>(nullptr));
  NM_CALL(cudaMemcpy(stem_mask, mask.data(), mask.size(), cudaMemcpyHostToDevice));
  resources_.stem_mask = stem_mask;

  void* records = nullptr;
  NM_CALL(cudaHostAlloc(&records, steps_in_flight * sizeof(DeviceRecord), cudaHostAllocMapped));
  pinned_records_.reset(records);
  void* device_records = nullptr;
  NM_CALL(cudaHostGetDevicePointer(&device_records, records, 0));
  resources_.ring = static_cast<DeviceRecord*>(device_records);
  resources_.ring_size = steps_in_flight;

  if (options_.input_from_host) {
    const int64_t bytes = packed_image_bytes(graph_, options_);
    void* images = nullptr;
    NM_CALL(cudaHostAlloc(&images, bytes, cudaHostAllocDefault));
    host_images_.reset(images);
    staged_images_ = allocate_device(bytes);
    device_bytes_ += bytes;
    images_taken_ = make_event();
    images_staged_ = make_event();
  }
}

void CudaProgram::bind_convolutions() {
  const int64_t size = element_bytes(options_.precision);
  const FlatParameters& flat = resources_.parameters;
  for (Kernel& kernel : step_.kernels) {
    if (!kernel.convolution) continue;
    const ConvolutionCall& call = *kernel.convolution;
    const ConvolutionPlan* plan = tuner_->plan(call.problem);
    const int64_t offset = layout_.slices[call.weight_parameter].offset;
    ConvolutionOperands operands;
    operands.x = call.x->data;
    operands.y = call.y->data;
    if (call.problem.op == ConvolutionOp::backward_weights) {
      operands.weights = static_cast<char*>(flat.matrix_gradients) + offset * size;
    } else if (flat.matrix_copies != nullptr) {
      operands.weights = static_cast<char*>(flat.matrix_copies) + offset * size;
    } else {
      operands.weights = flat.values + offset;
    }
    if (call.sums != nullptr) {
      operands.sum = call.sums->data;
      operands.square_sum =
          static_cast<float*>(call.sums->data) + call.problem.shape.output_channels;
    }
    kernel.implementation = "cudnn " + plan->name();
    kernel.launch = [cudnn = cudnn_.get(), plan,
                     bound = plan->bind(operands, workspace_.get())](cudaStream_t) {
      NM_CALL(plan->try_execute(cudnn, bound));  // on the handle's stream
    };
  }
}

void CudaProgram::record_step() {
  cudaStream_t stream = stream_.get();
  if (options_.input_from_host) {
    launch_unpack_images(options_.precision, step_.image_layout, staged_images_.get(),
                         step_.images->data, stream);
    NM_CALL(cudaEventRecord(images_taken_.get(), stream));
    NM_CALL(cudaStreamWaitEvent(copy_stream_.get(), images_taken_.get()));
    NM_CALL(cudaMemcpyAsync(staged_images_.get(), host_images_.get(),
                            packed_image_bytes(graph_, options_), cudaMemcpyHostToDevice,
                            copy_stream_.get()));
    NM_CALL(cudaEventRecord(images_staged_.get(), copy_stream_.get()));
  }
  for (const Kernel& kernel : step_.kernels) kernel.launch(stream);
  if (options_.input_from_host) NM_CALL(cudaStreamWaitEvent(stream, images_staged_.get()));
}

void CudaProgram::capture_step() {
  cudaGraph_t raw = nullptr;
  NM_CALL(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal));
  record_step();
  NM_CALL(cudaStreamEndCapture(stream_.get(), &raw));
  const GraphHandle graph(raw);
  cudaGraphExec_t executable = nullptr;
  NM_CALL(cudaGraphInstantiate(&executable, graph.get(), 0));
  executable_.reset(executable);
  NM_CALL(cudaGraphUpload(executable, stream_.get()));
}

void CudaProgram::enqueue_step() {
  const auto ring = static_cast<int64_t>(step_ends_.size());
  if (enqueued_ == finished_) {
    NM_CALL(cudaEventRecord(step_ends_[enqueued_ % ring].get(), stream_.get()));
  }
  if (executable_ != nullptr) {
    NM_CALL(cudaGraphLaunch(executable_.get(), stream_.get()));
  } else {
    record_step();
  }
  ++enqueued_;
  NM_CALL(cudaEventRecord(step_ends_[enqueued_ % ring].get(), stream_.get()));
}

StepRecord CudaProgram::wait_step() {
  const auto ring = static_cast<int64_t>(step_ends_.size());
  cudaEvent_t begin = step_ends_[finished_ % ring].get();
  cudaEvent_t end = step_ends_[(finished_ + 1) % ring].get();
  NM_CALL(cudaEventSynchronize(end));
  float milliseconds = 0;
  NM_CALL(cudaEventElapsedTime(&milliseconds, begin, end));
  const auto* records = static_cast<const volatile DeviceRecord*>(pinned_records_.get());
  const volatile DeviceRecord& record = records[finished_ % steps_in_flight];
  ++finished_;
  return {milliseconds * 1e-3, record.loss, record.gradient_norm, record.update_skipped != 0};
}

void CudaProgram::wait_until_idle() { NM_CALL(cudaStreamSynchronize(stream_.get())); }

void CudaProgram::restart(std::span<const float> parameters) {
  wait_until_idle();
  enqueued_ = finished_ = 0;
  const FlatParameters& flat = resources_.parameters;
  const std::vector<float> values = layout_.to_flat(graph_, parameters);
  const int64_t bytes = layout_.elements() * static_cast<int64_t>(sizeof(float));
  NM_CALL(cudaMemcpy(flat.values, values.data(), bytes, cudaMemcpyHostToDevice));
  NM_CALL(cudaMemset(flat.momentum, 0, bytes));
  launch_copy_matrices(options_.precision, flat, stream_.get());

  std::vector<float> statistics;  // mean 0, variance 1
  for (const Node& node : graph_.nodes()) {
    if (node.op != OpKind::batch_norm) continue;
    statistics.insert(statistics.end(), node.shape.channels, 0.0f);
    statistics.insert(statistics.end(), node.shape.channels, 1.0f);
  }
  NM_CALL(cudaMemcpy(running_statistics_, statistics.data(), statistics.size() * sizeof(float),
                     cudaMemcpyHostToDevice));
  const auto scale = static_cast<float>(options_.loss_scale.initial);
  const StepState state{0, scale, 1 / scale, 0, 0};
  NM_CALL(cudaMemcpy(resources_.state, &state, sizeof(state), cudaMemcpyHostToDevice));
  wait_until_idle();
}

std::vector<float> CudaProgram::parameters() {
  wait_until_idle();
  return layout_.to_canonical(graph_,
                              download<float>(resources_.parameters.values, layout_.elements()));
}

std::vector<float> CudaProgram::momentum() {
  wait_until_idle();
  return layout_.to_canonical(graph_,
                              download<float>(resources_.parameters.momentum, layout_.elements()));
}

std::vector<float> CudaProgram::gradients() {
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
  return download<float>(running_statistics_, 2 * norm_channels_);
}

void CudaProgram::use_batch(std::span<const float> images, std::span<const int32_t> labels) {
  wait_until_idle();
  const int32_t fixed = 1;
  const DeviceMemory source = allocate_device(static_cast<int64_t>(images.size_bytes()));
  NM_CALL(cudaMemcpy(source.get(), images.data(), images.size_bytes(), cudaMemcpyHostToDevice));
  launch_convert_images(options_.precision, step_.image_layout,
                        static_cast<const float*>(source.get()), step_.images->data, stream_.get());
  NM_CALL(cudaMemcpy(fixed_labels_, labels.data(), labels.size_bytes(), cudaMemcpyHostToDevice));
  NM_CALL(cudaMemcpy(use_fixed_labels_, &fixed, sizeof(fixed), cudaMemcpyHostToDevice));
  stage_images();
}

void CudaProgram::use_synthetic_batch() {
  wait_until_idle();
  launch_synthetic_images(options_.precision, step_.image_layout, image_seed(options_.data_seed),
                          step_.images->data, stream_.get());
  NM_CALL(cudaMemsetAsync(use_fixed_labels_, 0, sizeof(int32_t), stream_.get()));
  stage_images();
}

void CudaProgram::stage_images() {
  if (options_.input_from_host) {
    const int64_t bytes = packed_image_bytes(graph_, options_);
    launch_pack_images(options_.precision, step_.image_layout, step_.images->data,
                       staged_images_.get(), stream_.get());
    NM_CALL(cudaMemcpyAsync(host_images_.get(), staged_images_.get(), bytes, cudaMemcpyDeviceToHost,
                            stream_.get()));
  }
  wait_until_idle();
}

Profile CudaProgram::profile(int repeats) {
  wait_until_idle();
  const size_t kernels = step_.kernels.size();
  std::vector<EventHandle> marks;
  for (size_t i = 0; i <= kernels; ++i) marks.push_back(make_event());
  std::vector<std::vector<float>> milliseconds(kernels, std::vector<float>(repeats));
  for (int run = 0; run < repeats; ++run) {
    NM_CALL(cudaEventRecord(marks[0].get(), stream_.get()));
    for (size_t i = 0; i < kernels; ++i) {
      step_.kernels[i].launch(stream_.get());
      NM_CALL(cudaEventRecord(marks[i + 1].get(), stream_.get()));
    }
    wait_until_idle();
    for (size_t i = 0; i < kernels; ++i) {
      NM_CALL(cudaEventElapsedTime(&milliseconds[i][run], marks[i].get(), marks[i + 1].get()));
    }
  }
  Profile profile;
  for (size_t i = 0; i < kernels; ++i) {
    const Kernel& kernel = step_.kernels[i];
    auto middle = milliseconds[i].begin() + repeats / 2;
    std::nth_element(milliseconds[i].begin(), middle, milliseconds[i].end());
    profile.entries.push_back({kernel.name, kernel.phase, kernel.implementation, *middle * 1e-3,
                               kernel.flops, kernel.bytes});
  }
  profile.copy_bytes_per_second = measured_copy_bytes_per_second();
  profile.matrix_flops_per_second = measured_matrix_flops_per_second(options_.precision);
  return profile;
}

int64_t CudaProgram::bytes_needed(const Graph& graph, const ProgramOptions& options) {
  const LoweringChoices choices{stem_forms(stem_conv(graph), graph.image()).back(), {}};
  const FlatLayout layout = flat_layout(graph, choices.stem);
  const StepResources resources;
  const LoweredStep step = lower(graph, options, choices, layout, resources);
  const PersistentLayout at = persistent_layout(graph, options, layout, 1024);
  const int64_t staged = options.input_from_host ? packed_image_bytes(graph, options) : 0;
  return step.memory.total_bytes + at.arena.bytes() + workspace_limit + staged;
}

int64_t CudaProgram::largest_batch(const Graph& graph, const ProgramOptions& options,
                                   int64_t available_bytes) {
  const auto fits = [&](int64_t batch) {
    ProgramOptions tried = options;
    tried.batch_size = batch;
    return bytes_needed(graph, tried) <= available_bytes;
  };
  int64_t good = 0, bad = largest_batch_size + 1;
  while (bad - good > 1) {
    const int64_t middle = (good + bad) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

}  // namespace nearmetal
