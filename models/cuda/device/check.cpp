#include "models/cuda/device/check.h"

#include <exception>

namespace nearmetal::cuda {

void fail_call(const std::string& text, const char* call, const char* file, int line) {
  throw std::runtime_error(text + " (" + call + ", " + file + ":" + std::to_string(line) + ")");
}

void require_ok(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // else the check after the next launch reports it again
  fail_call(std::string("CUDA: ") + cudaGetErrorString(status), call, file, line);
}

void no_kernel(const char* what) { throw std::logic_error(what); }

void require_ok(CUresult status, const char* call, const char* file, int line) {
  require_ok(static_cast<cudaError_t>(status), call, file, line);  // they share their numbers
}

void* find_driver_function(const char* name, unsigned since) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult answer{};
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion(name, &found, since, cudaEnableDefault, &answer);
  if (status == cudaSuccess && answer == cudaDriverEntryPointSuccess) return found;
  cudaGetLastError();  // nothing that a later call may find
  return nullptr;
}

StreamHandle make_stream() {
  return NM_MAKE(StreamHandle, cudaStreamCreateWithFlags, cudaStreamNonBlocking);
}

StreamHandle make_urgent_stream() {
  int lowest = 0, highest = 0;
  NM_CALL(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  return NM_MAKE(StreamHandle, cudaStreamCreateWithPriority, cudaStreamNonBlocking, highest);
}

EventHandle make_event(unsigned flags) {
  return NM_MAKE(EventHandle, cudaEventCreateWithFlags, flags);
}

DeviceMemory allocate_device(int64_t bytes) {
  return NM_MAKE(DeviceMemory, cudaMalloc, static_cast<size_t>(bytes));
}

PinnedMemory allocate_pinned(int64_t bytes) {
  return NM_MAKE(PinnedMemory, cudaHostAlloc, static_cast<size_t>(bytes), cudaHostAllocDefault);
}

double seconds_between(cudaEvent_t begin, cudaEvent_t end) {
  NM_CALL(cudaEventSynchronize(end));
  float milliseconds = 0;
  NM_CALL(cudaEventElapsedTime(&milliseconds, begin, end));
  return 1e-3 * milliseconds;
}

GraphExecHandle captured(cudaStream_t stream, const std::function<void()>& work) {
  NM_CALL(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  std::exception_ptr failure;
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  cudaGraph_t raw = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &raw);
  const Handle<cudaGraph_t, cudaGraphDestroy> graph(raw);
  cudaGetLastError();  // of a capture that a call has made invalid
  try {
    if (failure != nullptr) std::rethrow_exception(failure);
    NM_CALL(ended);
    return NM_MAKE(GraphExecHandle, cudaGraphInstantiate, graph.get(), 0);
  } catch (const std::runtime_error& error) {
    throw CaptureRefused(error.what());
  }
}

}  // namespace nearmetal::cuda
