// A part of the passes on memory of its own: what would run, timed and compared.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/cuda/compiler/emission.h"
#include "models/cuda/compiler/resources.h"
#include "models/cuda/device/check.h"
#include "models/graph.h"
#include "models/program.h"

namespace nearmetal::cuda {

/// Where candidates run.
struct TuningDevice {
  cudnnHandle_t handle = nullptr;
  cublasLtHandle_t cublas = nullptr;
  cudaStream_t stream = nullptr;
  int compute_capability_major = 0;
  int multiprocessors = 0;
  const std::atomic<int>* stop = &never_stopped;  // as ProgramOptions has it
};

/// What its kernels come from; all must outlive the trial.
struct TrialSource {
  const Graph& graph;
  const ProgramOptions& options;  // of one micro-batch
  const TuningDevice& device;
  void* workspace = nullptr;          // workspace_limit()
  std::function<void(Kernel&)> bind;  // to a library's plan
};

/// Memory for one trial after another: it grows as they need.
class TrialMemory {
 public:
  void* take(int64_t bytes);

 private:
  DeviceMemory memory_;
  int64_t bytes_ = 0;
};

/// One alternative. What comes from elsewhere is the same for all: operands as a step has them, by
/// the names of values.
class Trial {
 public:
  /// The trial is over when the next one takes the memory.
  Trial(const TrialSource& source, const Ops& ops, const OpsOfPart& part, StemForm stem,
        TrialMemory& memory);

  /// Fills what comes from elsewhere anew, and results with NaN.
  void prepare();
  void run(Pass pass);
  /// The time of both passes once they have run, as part of a step, which is a graph: without what
  /// the host takes to launch. Infinite where they cannot be captured.
  double seconds();

  /// How far a result is from the reference's, beside how far it may be.
  struct Error {
    double relative = 0;  // Euclidean; infinite where a value is not finite
    double allowed = 1;
    std::string result{};  // empty: nothing was compared

    double share() const { return relative / allowed; }  // more than 1: it is wrong
  };
  /// The error before, or a worse one of what both leave in this pass.
  Error worse(const Error& before, Pass pass, const Trial& reference) const;
  /// Takes over from the reference what both leave, so that later passes read the same.
  void take(Pass pass, const Trial& reference);

  std::vector<Kernel>& kernels(Pass pass) { return kernels_[static_cast<size_t>(pass)]; }

 private:
  struct Result {
    const void* data;
    int64_t bytes;
    Content content;
    Precision precision;
    double allowed;
  };
  using Results = std::map<std::string, Result>;  // by name
  void make_kernels(Pass pass, const std::vector<FusedOp>& ops);
  void fill_parameters();
  void add_norm_results(const FusedOp& op);
  void add_gradients(const FusedOp& op);
  int64_t rows(const FusedOp& op) const;

  const TrialSource source_;
  std::vector<Value> values_;
  std::vector<std::pair<const FusedOp*, Operand>> inputs_;
  OpsOfPart part_;
  FlatLayout layout_;
  std::vector<int> parameters_;  // that the part reads or leaves a gradient of
  StepResources resources_;
  std::optional<PersistentMemory> persistent_;
  void* memory_ = nullptr;
  int64_t bytes_ = 0;
  std::vector<Tensor> owned_;
  std::vector<const Tensor*> tensors_;  // by value
  std::vector<Kernel> kernels_[2];
  Results results_[2];
};

}  // namespace nearmetal::cuda
