// The GPU that a program runs on, and facts about its chip from NVIDIA's documents: its peaks and
// the precisions it computes.
#pragma once

#include <map>
#include <string>

#include "models/program.h"
#include "models/training_options.h"

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

/// Memory of the current device that nothing has taken.
int64_t free_device_bytes();

/// See Backend::take_share(). Once in a process.
void take_share_of_gpu(int gpu, const GpuShare& part);

/// The data sheet's dense peaks in FLOP/s of the GPU with this name, as CUDA reports it ("NVIDIA
/// A100-SXM4-80GB MIG 1g.10gb"), for the part of it that has so many multiprocessors. Empty where
/// the data sheet is not known here; without the precisions for which the chip has no units.
std::map<Precision, double> peak_rates(const std::string& name, int multiprocessors);

/// Whether chips of this compute capability (75 for 7.5) have units for the precision.
bool has_units(Precision precision, int capability);

int compute_capability(int gpu);

/// Throws NotSupported for a chip that no kernel here is compiled for, std::invalid_argument for a
/// precision that it has no units for. `name`: for the message.
void require_units(Precision precision, const std::string& name, int capability);

/// The same for the GPU of that index.
void require_units(Precision precision, int gpu);

}  // namespace nearmetal::cuda
