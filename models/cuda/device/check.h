// Status checks and owning handles. Other libraries add an overload of require_ok() for their
// status (cuDNN and cuBLAS: models/cuda/libraries/handles.h; NCCL: comm/gpu/nccl_group.h).
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "models/cuda/device/call.h"

namespace nearmetal::cuda {

/// Throws std::runtime_error: what a library said, the call, file and line.
[[noreturn]] void fail_call(const std::string& text, const char* call, const char* file, int line);

void require_ok(CUresult status, const char* call, const char* file, int line);

// Destructors ignore the status: they never throw and never hide the first error.
template <auto Destroy>
struct Destroyer {
  void operator()(auto handle) const noexcept { Destroy(handle); }
};
template <class H, auto Destroy>
using Handle = std::unique_ptr<std::remove_pointer_t<H>, Destroyer<Destroy>>;

/// The owner of what create(&raw, ...) of a library makes.
#define NM_MAKE(Owner, create, ...)                   \
  [&] {                                               \
    Owner::pointer raw = nullptr;                     \
    NM_CALL(create(&raw __VA_OPT__(, ) __VA_ARGS__)); \
    return Owner(raw);                                \
  }()

using StreamHandle = Handle<cudaStream_t, cudaStreamDestroy>;
using EventHandle = Handle<cudaEvent_t, cudaEventDestroy>;
using GraphExecHandle = Handle<cudaGraphExec_t, cudaGraphExecDestroy>;
using DeviceMemory = Handle<void*, cudaFree>;
using PinnedMemory = Handle<void*, cudaFreeHost>;
using RegisteredMemory = Handle<void*, cudaHostUnregister>;

/// A function of the driver, which is not linked so that modules load where there is none. Null
/// where the driver lacks it. `since`: the version of CUDA that gave it this form, such as 12040.
void* find_driver_function(const char* name, unsigned since);

/// The same; throws std::runtime_error where the driver lacks it.
template <class Function>
Function driver_function(const char* name, unsigned since) {
  void* found = find_driver_function(name, since);
  if (found != nullptr) return reinterpret_cast<Function>(found);
  throw std::runtime_error(std::string("this driver has no ") + name);
}

StreamHandle make_stream();
/// One of the highest priority.
StreamHandle make_urgent_stream();
/// `flags`: such as cudaEventBlockingSync.
EventHandle make_event(unsigned flags = cudaEventDefault);
DeviceMemory allocate_device(int64_t bytes);
PinnedMemory allocate_pinned(int64_t bytes);

/// Waits for `end`.
double seconds_between(cudaEvent_t begin, cudaEvent_t end);

/// What was queued cannot be part of a graph.
class CaptureRefused : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// An executable graph of what `work` queues on `stream`, not run. Throws CaptureRefused where some
/// call fails while it is captured, and whatever else `work` throws; the stream is as before.
GraphExecHandle captured(cudaStream_t stream, const std::function<void()>& work);

/// A call apart loads the kernel and keeps the device from waiting for the host's next launches.
struct Calls {
  int apart, timed;
};

/// Mean milliseconds of the timed calls of `launch`, by events on `stream`.
template <class Launch>
double milliseconds_of(Launch&& launch, Calls calls, cudaStream_t stream) {
  const EventHandle begin = make_event();
  const EventHandle end = make_event();
  for (int i = 0; i < calls.apart; ++i) launch();
  NM_CALL(cudaEventRecord(begin.get(), stream));
  for (int i = 0; i < calls.timed; ++i) launch();
  NM_CALL(cudaEventRecord(end.get(), stream));
  return 1e3 * seconds_between(begin.get(), end.get()) / calls.timed;
}

}  // namespace nearmetal::cuda
