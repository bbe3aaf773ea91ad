// The samples of a program: on the device, and images on the host where steps copy them from there.
#include "models/cuda/cuda_program.h"
#include "models/synthetic.h"

namespace nearmetal::cuda {

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
  wait_until_idle();
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

}  // namespace nearmetal::cuda
