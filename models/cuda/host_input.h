// Images that every step takes from host memory.
#pragma once

#include <vector>

#include "models/cuda/device/check.h"
#include "models/cuda/kernels/images.h"
#include "models/program.h"

namespace nearmetal::cuda {

/// Those of the next step are copied while this one runs, on a stream of their own.
class HostInput {
 public:
  /// Of a batch as a loader delivers it, NHWC without padding: on the host, and again on the
  /// device.
  static int64_t bytes(const Graph& graph, const ProgramOptions& options);

  HostInput(const Graph& graph, const ProgramOptions& options, const ImageLayout& layout);

  /// Leaves the device's images on the host, from where every step takes them.
  void keep(const void* images, cudaStream_t stream);
  /// The images of this step, which the step before has copied.
  void take(void* images, cudaStream_t stream);
  /// Copies those of the next, beside what is queued between take() and this; `stream` goes on when
  /// they are there.
  void copy_next(cudaStream_t stream);

 private:
  Precision precision_;
  ImageLayout layout_;
  int64_t bytes_;
  PinnedMemory pinned_;
  std::vector<char> pageable_;
  void* host_ = nullptr;  // of the two the one that serves
  DeviceMemory staged_;
  StreamHandle copies_;
  EventHandle taken_, copied_;
};

}  // namespace nearmetal::cuda
