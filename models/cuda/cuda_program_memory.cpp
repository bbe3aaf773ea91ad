// The samples of a program, on the device or on the host where steps copy images from there, and
// the memory that it needs.
#include <algorithm>
#include <limits>
#include <stdexcept>

#include "models/cuda/cuda_program.h"
#include "models/cuda/device/device.h"
#include "models/synthetic.h"

namespace nearmetal::cuda {
namespace {

constexpr int assumed_multiprocessors = 1024;  // for an upper bound of memory

// cuDNN's kernels for what is not a convolution count elements in 32 bits.
int64_t largest_batch_size(const Graph& graph, const ProgramOptions& options) {
  int64_t largest = 65535;
  if (options.kernels != Kernels::cudnn) return largest;
  for (const Node& node : graph.nodes()) {
    largest = std::min(largest, std::numeric_limits<int32_t>::max() / node.shape.elements());
  }
  return largest;
}

}  // namespace

int64_t HostInput::bytes(const Graph& graph, const ProgramOptions& options) {
  return graph.image().elements() * options.step_images() * element_bytes(options.precision);
}

HostInput::HostInput(const Graph& graph, const ProgramOptions& options, const ImageLayout& layout)
    : precision_(options.precision),
      layout_(layout),
      bytes_(bytes(graph, options)),
      staged_(allocate_device(bytes_)),
      copies_(make_stream()),
      taken_(make_event()),
      copied_(make_event()) {
  if (options.input == Input::pinned) {
    pinned_ = allocate_pinned(bytes_);
    host_ = pinned_.get();
  } else {
    pageable_.resize(bytes_);
    host_ = pageable_.data();
  }
}

void HostInput::keep(const void* images, cudaStream_t stream) {
  launch_pack_images(precision_, layout_, images, staged_.get(), stream);
  NM_CALL(cudaMemcpyAsync(host_, staged_.get(), bytes_, cudaMemcpyDeviceToHost, stream));
}

void HostInput::take(void* images, cudaStream_t stream) {
  launch_unpack_images(precision_, layout_, staged_.get(), images, stream);
  NM_CALL(cudaEventRecord(taken_.get(), stream));
}

void HostInput::copy_next(cudaStream_t stream) {
  NM_CALL(cudaStreamWaitEvent(copies_.get(), taken_.get()));
  NM_CALL(cudaMemcpyAsync(staged_.get(), host_, bytes_, cudaMemcpyHostToDevice, copies_.get()));
  NM_CALL(cudaEventRecord(copied_.get(), copies_.get()));
  NM_CALL(cudaStreamWaitEvent(stream, copied_.get()));
}

void CudaProgram::use_batch(std::span<const float> images, std::span<const int32_t> labels) {
  if (graph_.reads_tokens()) throw std::logic_error("it reads tokens");
  wait_until_idle();
  DeviceMemory source;
  if (step_.images != nullptr) {  // a first stage, or the whole network
    source = allocate_device(static_cast<int64_t>(images.size_bytes()));
    upload(source.get(), images.data(), static_cast<int64_t>(images.size_bytes()));
    launch_convert_images(options_.precision, step_.image_layout,
                          static_cast<const float*>(source.get()), step_.images->data,
                          stream_.get());
  }
  fix_labels(labels);
  stage_images();
}

void CudaProgram::use_sequences(std::span<const int32_t> tokens, std::span<const int32_t> labels) {
  if (!graph_.reads_tokens() && !graph_.receives()) throw std::logic_error("it reads images");
  wait_until_idle();
  if (graph_.reads_tokens()) {
    upload(resources_.fixed_tokens, tokens.data(), static_cast<int64_t>(tokens.size_bytes()));
  }
  fix_labels(labels);
}

void CudaProgram::fix_labels(std::span<const int32_t> labels) {
  const int32_t fixed = 1;
  if (graph_.has_loss()) {
    upload(resources_.fixed_labels, labels.data(), static_cast<int64_t>(labels.size_bytes()));
  }
  upload(resources_.use_fixed_samples, &fixed, sizeof(fixed));
  wait_until_idle();  // for the values of this function
}

void CudaProgram::use_synthetic_batch() {
  wait_until_idle();
  if (step_.images != nullptr)
    launch_synthetic_images(options_.precision, step_.image_layout, image_seed(options_.data_seed),
                            step_.images->data, stream_.get());
  NM_CALL(cudaMemsetAsync(resources_.use_fixed_samples, 0, sizeof(int32_t), stream_.get()));
  stage_images();
}

void CudaProgram::stage_images() {
  if (host_input_ && step_.images != nullptr) {
    host_input_->keep(step_.images->data, stream_.get());
  }
  wait_until_idle();
}

CudaProgram::Fits::Fits(const Graph& graph, const ProgramOptions& options) {
  use_gpu(options.gpu);
  require_units(options.precision, options.gpu);
  require_sizes(options);
  const int64_t largest_counted = largest_batch_size(graph, options);
  if (options.batch_size > largest_counted) {
    throw std::invalid_argument((options.kernels == Kernels::cudnn
                                     ? "cuDNN's kernels take " + graph.name() + " in"
                                     : std::string("the CUDA backend takes")) +
                                " batch sizes up to " + std::to_string(largest_counted));
  }
  const int64_t available = free_device_bytes();
  require_memory(options, bytes_needed(graph, options), available, "GPU memory",
                 [&] { return largest_batch(graph, options, available); });
}

int64_t CudaProgram::bytes_needed(const Graph& graph, const ProgramOptions& options) {
  LoweringChoices choices;
  choices.stem = forms_of(graph, options.precision).back();
  int64_t workspace = workspace_limit(options.precision);
  if (compute_capability(options.gpu) >= 80) {
    for (const AttentionProblem& problem : distinct_attention(graph, options)) {
      choices.fused_attention.insert(problem.key());
      workspace = std::max(workspace, workspace_limit(problem));
    }
  }
  const FlatLayout layout = flat_layout(graph, choices.stem);
  const StepResources resources;
  const LoweredStep step = lower(graph, options, choices, layout, resources);
  const bool copies = options.input != Input::device && step.images != nullptr;
  const int64_t staged = copies ? HostInput::bytes(graph, options) : 0;
  // Known values test the boundaries after the steps, in memory of their own.
  const BoundaryBytes tested = bytes_of_boundaries(graph, options);
  return step.memory.total_bytes +
         PersistentMemory::bytes_needed(graph, options, layout, assumed_multiprocessors) +
         workspace + staged + tested.received + tested.sent;
}

int64_t CudaProgram::device_bytes_by(Schedule schedule) const {
  if (schedule == options_.pipeline.schedule) return device_bytes_;
  ProgramOptions options = options_;
  options.pipeline.schedule = schedule;
  const LoweredStep step = lower(graph_, options, choices_, layout_, resources_);
  return device_bytes_ - step_.memory.total_bytes + step.memory.total_bytes;
}

int64_t CudaProgram::largest_batch(const Graph& graph, const ProgramOptions& options,
                                   int64_t available_bytes) {
  const auto fits = [&](int64_t batch) {
    ProgramOptions tried = options;
    tried.batch_size = batch;
    return bytes_needed(graph, tried) <= available_bytes;
  };
  return largest_fitting(0, largest_batch_size(graph, options) + 1, fits);
}

}  // namespace nearmetal::cuda
