// The device memory that outlives a step: parameters, statistics, labels, counters.
#pragma once

#include <cublasLt.h>
#include <cudnn_graph.h>

#include <cstdint>
#include <span>
#include <vector>

#include "models/cuda/compiler/flat_layout.h"
#include "models/cuda/device/check.h"
#include "models/cuda/kernels/batch_norm.h"
#include "models/cuda/kernels/update.h"
#include "models/graph.h"
#include "models/program.h"

namespace nearmetal::cuda {

/// Device addresses. Kernels refer to this struct, so that it can be filled after lowering.
struct StepResources {
  ReductionScratch reduction;
  // By slot, then by node index: a micro-batch has its own from its forward to its backward pass.
  std::vector<BatchNormState> norms;
  size_t nodes = 0;
  FlatParameters parameters;
  // Gradients in the type in which they travel to other ranks; null where that is their own.
  void* sent_matrices = nullptr;
  void* sent_vectors = nullptr;
  int ranks = 1;                 // whose gradients are summed
  uint8_t* stem_mask = nullptr;  // 0 where a place of the stem's filter is no weight
  StepState* state = nullptr;
  DeviceRecord* ring = nullptr;  // in host memory
  int ring_size = 1;
  double* finish_sums = nullptr;
  unsigned* finish_arrivals = nullptr;
  int32_t* labels = nullptr;  // of a step, by sample
  int32_t* tokens = nullptr;  // likewise, where samples are sequences
  int32_t* fixed_labels = nullptr;
  int32_t* fixed_tokens = nullptr;
  int32_t* use_fixed_samples = nullptr;
  float* losses = nullptr;
  float* running_statistics = nullptr;  // mean, then variance, of each batch norm in graph order
  int64_t running_statistics_count = 0;
  void* workspace = nullptr;
  cublasLtHandle_t cublas = nullptr;
  cudnnHandle_t cudnn = nullptr;  // null: lowered without a device
  // For a stage of a pipeline:
  StageLinks* links = nullptr;
  double* stage_sums = nullptr;   // over all stages: squares of the gradient, mean loss
  uint64_t* mark_ring = nullptr;  // in host memory: mark_count for each step of the ring
  int mark_count = 0;

  const BatchNormState& norm(int64_t slot, int node) const { return norms[slot * nodes + node]; }
};

/// So many micro-batches have a state of their batch norms at once.
int64_t norm_slots(const ProgramOptions& options);

/// The marks of a stage: begin and end of each task, then of the pipeline; 0 without one.
int marks_of_step(const ProgramOptions& options);

/// Owns the memory behind StepResources, but for workspace and handle.
class PersistentMemory {
 public:
  /// Everything is 0, but the mask of the stem, which is set.
  PersistentMemory(const Graph& graph, const ProgramOptions& options, const FlatLayout& layout,
                   int multiprocessors, int ring_size, StepResources& resources);

  static int64_t bytes_needed(const Graph& graph, const ProgramOptions& options,
                              const FlatLayout& layout, int multiprocessors);
  int64_t bytes() const { return bytes_; }
  const DeviceRecord& record(int64_t step) const {
    return static_cast<const DeviceRecord*>(records_.get())[step % ring_size_];
  }
  /// Nanoseconds, in the order of marks_of_step().
  std::span<const uint64_t> marks(int64_t step) const {
    return {static_cast<const uint64_t*>(marks_.get()) + step % ring_size_ * mark_count_,
            static_cast<size_t>(mark_count_)};
  }

 private:
  DeviceMemory memory_;
  PinnedMemory records_;
  PinnedMemory marks_;
  int mark_count_ = 0;
  int64_t bytes_ = 0;
  int ring_size_ = 1;
};

/// Whether a convolution reads the image: not in a stage that receives values, nor of sequences.
inline bool has_stem(const Graph& graph) { return !graph.receives() && !graph.reads_tokens(); }

/// Forms that its first convolution may take; any one where there is none.
std::vector<StemForm> forms_of(const Graph& graph, Precision precision);

/// The convolution that reads the image. Throws std::invalid_argument if there is none.
const Node& stem_convolution(const Graph& graph);

}  // namespace nearmetal::cuda
