// A graph prepared for one NVIDIA GPU.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "models/cuda/compiler/lowering.h"
#include "models/cuda/compiler/resources.h"
#include "models/cuda/host_input.h"
#include "models/cuda/libraries/library_check.h"
#include "models/cuda/tuning/tuner.h"
#include "models/graph.h"
#include "models/program.h"

namespace nearmetal::cuda {

class CudaProgram : public Program {
 public:
  CudaProgram(const Graph& graph, const ProgramOptions& options);
  ~CudaProgram() override;

  int max_steps_in_flight() const override { return steps_in_flight; }
  void enqueue_step() override;
  StepRecord wait_step() override;
  void exchange_gradients(AllReduce& all_reduce, int64_t bucket_bytes) override;

  void restart(std::span<const float> parameters) override;
  std::vector<float> parameters() override;
  std::vector<float> momentum() override;
  std::vector<float> gradients() override;
  std::vector<float> running_statistics() override;

  void use_batch(std::span<const float> images, std::span<const int32_t> labels) override;
  void use_synthetic_batch() override;

  std::vector<Plan> plans() const override { return tuner_->used(); }
  Profile profile(int repeats) override;
  std::vector<Probe> probes() override;
  int64_t device_bytes() const override { return device_bytes_; }

  /// What a program would choose; takes memory only meanwhile.
  static std::vector<Plan> choose_plans(const Graph& graph, const ProgramOptions& options);
  /// Device memory that such a program takes, without the CUDA context.
  static int64_t bytes_needed(const Graph& graph, const ProgramOptions& options);
  /// The largest batch of such a program that takes no more; 0 if not even one image fits.
  static int64_t largest_batch(const Graph& graph, const ProgramOptions& options,
                               int64_t available_bytes);

 private:
  /// Throws OutOfMemory, or std::invalid_argument for a batch that no GPU takes.
  static void require_memory(const Graph& graph, const ProgramOptions& options);

  // Enough to hide the host; more would fill the launch queue (1024 kernels) and block it.
  static constexpr int steps_in_flight = 3;

  // With its kernels chosen: what the other constructor begins with.
  struct WithoutMemory {};
  CudaProgram(const Graph& graph, const ProgramOptions& options, WithoutMemory);

  void choose_kernels();
  void allocate();
  void bind_convolutions();
  void stage_images();
  void launch_step();
  void capture_step();
  // Runs the kernels once and makes the graph; parameters are 0 afterwards.
  void settle_step();
  TimedRuns time_alone(const Kernel& kernel);
  void upload(void* device, const void* host, int64_t bytes);
  void wait_until_idle();

  Graph graph_;
  ProgramOptions options_;
  int multiprocessors_ = 1;
  StreamHandle stream_;
  CudnnHandle cudnn_;
  CublasLtHandle cublas_;
  std::unique_ptr<Tuner> tuner_;
  LoweringChoices choices_;
  FlatLayout layout_;
  StepResources resources_;
  LoweredStep step_;

  std::unique_ptr<PersistentMemory> persistent_;
  DeviceMemory activations_, workspace_;
  int64_t device_bytes_ = 0;

  std::optional<HostInput> host_input_;
  GraphExecHandle executable_;
  std::vector<EventHandle> step_ends_;   // a ring, one more than steps in flight
  int64_t enqueued_ = 0, finished_ = 0;  // steps since restart()
};

}  // namespace nearmetal::cuda
