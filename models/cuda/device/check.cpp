#include "models/cuda/device/check.h"

#include <array>
#include <stdexcept>
#include <string>

namespace nearmetal::cuda {
namespace {

[[noreturn]] void fail(const std::string& text, const char* call, const char* file, int line) {
  throw std::runtime_error(text + " (" + call + ", " + file + ":" + std::to_string(line) + ")");
}

}  // namespace

void require_ok(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  fail(std::string("CUDA: ") + cudaGetErrorString(status), call, file, line);
}

void require_ok(cudnnStatus_t status, const char* call, const char* file, int line) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 512> detail{};
  cudnnGetLastErrorString(detail.data(), detail.size());
  fail(std::string("cuDNN: ") + cudnnGetErrorString(status) + " " + detail.data(), call, file,
       line);
}

void require_ok(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(std::string("cuBLAS: ") + cublasLtGetStatusString(status), call, file, line);
}

StreamHandle make_stream() {
  cudaStream_t stream = nullptr;
  NM_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return StreamHandle(stream);
}

EventHandle make_event() {
  cudaEvent_t event = nullptr;
  NM_CALL(cudaEventCreate(&event));
  return EventHandle(event);
}

DeviceMemory allocate_device(int64_t bytes) {
  void* memory = nullptr;
  NM_CALL(cudaMalloc(&memory, static_cast<size_t>(bytes)));
  return DeviceMemory(memory);
}

}  // namespace nearmetal::cuda
