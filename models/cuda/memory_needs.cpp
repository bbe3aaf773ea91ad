#include <algorithm>
#include <limits>
#include <stdexcept>

#include "models/cuda/cuda_program.h"
#include "models/cuda/device/chip.h"
#include "models/cuda/device/device.h"
#include "models/errors.h"

namespace nearmetal::cuda {
namespace {

constexpr int assumed_multiprocessors = 1024;  // for an upper bound of memory

// cuDNN's kernels for what is not a convolution count elements in 32 bits.
int64_t largest_batch_size(const Graph& graph, const ProgramOptions& options) {
  int64_t largest = 65535;
  if (options.kernels != Kernels::cudnn) return largest;
  for (const Node& node : graph.nodes()) {
    largest = std::min(largest, std::numeric_limits<int32_t>::max() / node.shape.elements());
  }
  return largest;
}

}  // namespace

CudaProgram::Fits::Fits(const Graph& graph, const ProgramOptions& options) {
  use_gpu(options.gpu);
  require_units(options.precision, options.gpu);
  require_memory(graph, options);
}

void CudaProgram::require_memory(const Graph& graph, const ProgramOptions& options) {
  require_sizes(options);
  const int64_t largest_counted = largest_batch_size(graph, options);
  if (options.batch_size > largest_counted) {
    throw std::invalid_argument((options.kernels == Kernels::cudnn
                                     ? "cuDNN's kernels take " + graph.name() + " in"
                                     : std::string("the CUDA backend takes")) +
                                " batch sizes up to " + std::to_string(largest_counted));
  }
  const int64_t needed = bytes_needed(graph, options);
  size_t free = 0, total = 0;
  NM_CALL(cudaMemGetInfo(&free, &total));
  const auto available = static_cast<int64_t>(free);
  if (needed <= available) return;
  const int64_t largest = largest_batch(graph, options, available);
  throw OutOfMemory("batch " + std::to_string(options.batch_size) + " needs " +
                        std::to_string(needed) + " bytes of GPU memory, " +
                        std::to_string(available) + " are free; the largest batch that fits is " +
                        std::to_string(largest),
                    needed, available, largest);
}

int64_t CudaProgram::bytes_needed(const Graph& graph, const ProgramOptions& options) {
  LoweringChoices choices = choices_of_chip(options.gpu);
  choices.stem = forms_of(graph, options.precision).back();
  const FlatLayout layout = flat_layout(graph, choices.stem);
  const StepResources resources;
  const LoweredStep step = lower(graph, options, choices, layout, resources);
  const bool copies = options.input != Input::device && step.images != nullptr;
  const int64_t staged = copies ? HostInput::bytes(graph, options) : 0;
  // Known values test the boundaries after the steps, in memory of their own.
  const BoundaryBytes tested = bytes_of_boundaries(graph, options);
  return step.memory.total_bytes +
         PersistentMemory::bytes_needed(graph, options, layout, assumed_multiprocessors) +
         workspace_limit(options.precision) + staged + tested.received + tested.sent;
}

int64_t CudaProgram::device_bytes_by(Schedule schedule) const {
  if (schedule == options_.pipeline.schedule) return device_bytes_;
  ProgramOptions options = options_;
  options.pipeline.schedule = schedule;
  const LoweredStep step = lower(graph_, options, choices_, layout_, resources_);
  return device_bytes_ - step_.memory.total_bytes + step.memory.total_bytes;
}

int64_t CudaProgram::largest_batch(const Graph& graph, const ProgramOptions& options,
                                   int64_t available_bytes) {
  const auto fits = [&](int64_t batch) {
    ProgramOptions tried = options;
    tried.batch_size = batch;
    return bytes_needed(graph, tried) <= available_bytes;
  };
  int64_t good = 0, bad = largest_batch_size(graph, options) + 1;
  while (bad - good > 1) {
    const int64_t middle = (good + bad) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

}  // namespace nearmetal::cuda
