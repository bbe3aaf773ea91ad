// A context of CUDA that has a part of the GPU's multiprocessors.
#pragma once

#include <cuda.h>

#include "models/gpu_part.h"

namespace nearmetal::cuda {

/// Memory, modules and devices are those of the GPU's primary context; what is launched while this
/// is current, and into streams that were made then, runs on these multiprocessors alone. Of the
/// driver's API (CUDA 12.4 and later): cuGreenCtxCreate and its kin.
class GreenContext {
 public:
  /// Of the current device. Throws NotSupported where the driver or the GPU cannot be split.
  explicit GreenContext(const GpuPart& part);

  int multiprocessors() const { return multiprocessors_; }
  void make_current() const;

 private:
  CUcontext context_ = nullptr;  // of the process, to its end
  int multiprocessors_ = 0;
};

}  // namespace nearmetal::cuda
