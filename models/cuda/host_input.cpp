#include "models/cuda/cuda_program.h"

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

}  // namespace nearmetal::cuda
