// The GPU that a program runs on.
#pragma once

#include "models/program.h"

namespace nearmetal::cuda {

/// Throws std::runtime_error if there is no such GPU or its driver does not work.
DeviceInfo describe_gpu(int gpu);

/// Makes `gpu`, or the part of it that this process took, the current device of this thread and
/// returns its number of multiprocessors. The context is that of a SeparateContext while there is
/// one.
int use_gpu(int gpu);

/// The multiprocessors of the GPU, or the part of it, that use_gpu() made current.
int multiprocessors_in_use();

/// While it lives, this process works on `gpu` in a CUDA context of its own. Its end destroys that
/// context and what was made there: streams, memory, modules. Only one may live at a time. It has
/// no effect in a process that took a part of the GPU, or where the compute mode is not the
/// default; DeviceInfo::times_kernels_apart says so.
class SeparateContext {
 public:
  explicit SeparateContext(int gpu);
  ~SeparateContext();
  SeparateContext(const SeparateContext&) = delete;
  SeparateContext& operator=(const SeparateContext&) = delete;

 private:
  int gpu_;
};

/// See Backend::take_share(). Once in a process.
void take_share_of_gpu(int gpu, const GpuShare& part);

}  // namespace nearmetal::cuda
