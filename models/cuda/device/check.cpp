#include "models/cuda/device/check.h"

#include <stdexcept>
#include <string>

namespace nearmetal::cuda {

void fail_call(const std::string& text, const char* call, const char* file, int line) {
  throw std::runtime_error(text + " (" + call + ", " + file + ":" + std::to_string(line) + ")");
}

void require_ok(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  fail_call(std::string("CUDA: ") + cudaGetErrorString(status), call, file, line);
}

StreamHandle make_stream() {
  cudaStream_t stream = nullptr;
  NM_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return StreamHandle(stream);
}

EventHandle make_event(unsigned flags) {
  cudaEvent_t event = nullptr;
  NM_CALL(cudaEventCreateWithFlags(&event, flags));
  return EventHandle(event);
}

DeviceMemory allocate_device(int64_t bytes) {
  void* memory = nullptr;
  NM_CALL(cudaMalloc(&memory, static_cast<size_t>(bytes)));
  return DeviceMemory(memory);
}

}  // namespace nearmetal::cuda
