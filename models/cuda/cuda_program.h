// A graph prepared for one NVIDIA GPU.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "models/cuda/compiler/lowering.h"
#include "models/cuda/compiler/resources.h"
#include "models/cuda/device/check.h"
#include "models/cuda/kernels/images.h"
#include "models/cuda/libraries/handles.h"
#include "models/cuda/tuning/tuner.h"
#include "models/graph.h"
#include "models/program.h"

namespace nearmetal::cuda {

/// The images of steps; those of the next are copied while this one runs, on their own stream.
class HostInput {
 public:
  /// The bytes of a batch as a loader delivers it, NHWC without padding: on the host, and again on
  /// the device.
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
  void* host_ = nullptr;  // the one of the two that serves
  DeviceMemory staged_;
  StreamHandle copies_;
  EventHandle taken_, copied_;
};

class CudaProgram : public Program {
 public:
  CudaProgram(const Graph& graph, const ProgramOptions& options);
  ~CudaProgram() override;

  int max_steps_in_flight() const override { return steps_in_flight; }
  void enqueue_step() override;
  StepRecord wait_step() override;
  void exchange_gradients(AllReduce& all_reduce, int64_t bucket_bytes) override;
  std::vector<GradientPlace> gradient_places() const override;
  void connect_stages(StageLinks& links) override;
  std::vector<TaskMark> task_marks() override;
  int64_t boundary_bytes() const override { return bytes_of_boundaries(graph_, options_).sent; }

  void use_learning_rate(double rate) override { options_.optimizer.learning_rate = rate; }
  void restart(std::span<const float> parameters) override;
  std::vector<float> parameters() override;
  std::vector<float> momentum() override;
  std::vector<float> second_moments() override;
  std::vector<float> gradients() override;
  std::vector<float> running_statistics() override;
  std::vector<float> logits() override;

  void use_batch(std::span<const float> images, std::span<const int32_t> labels) override;
  void use_sequences(std::span<const int32_t> tokens, std::span<const int32_t> labels) override;
  void use_synthetic_batch() override;

  std::vector<KernelChoice> kernel_choices() const override { return tuner_->used(); }
  Profile profile(int repeats, bool with_ceilings) override;
  std::vector<Probe> probes() override;
  int64_t device_bytes() const override { return device_bytes_; }
  int64_t device_bytes_by(Schedule schedule) const override;

  /// The kernels that a program would choose; takes memory only meanwhile. Times them in a context
  /// of their own: in a context where kernels were timed, those of another program's graph start
  /// late (docs/notes/step_speed.md).
  static std::vector<KernelChoice> choose_kernels(const Graph& graph,
                                                  const ProgramOptions& options);
  /// Device memory that such a program takes, without the CUDA context.
  static int64_t bytes_needed(const Graph& graph, const ProgramOptions& options);
  /// The largest batch of such a program that takes no more; 0 if not even one image fits.
  static int64_t largest_batch(const Graph& graph, const ProgramOptions& options,
                               int64_t available_bytes);

 private:
  // Enough to hide the host; more would fill the launch queue (1024 kernels) and block it.
  static constexpr int steps_in_flight = 3;

  // Proof that the GPU can run such a program: it has the units and enough free memory. The
  // constructor throws OutOfMemory, std::invalid_argument for a batch that no GPU takes, and what
  // require_units() throws.
  struct Fits {
    Fits(const Graph& graph, const ProgramOptions& options);
  };
  // With its kernels chosen and no memory yet: what the other constructor begins with.
  CudaProgram(const Graph& graph, const ProgramOptions& options, Fits);

  void choose_kernels();
  void allocate();
  void bind_plans();
  void stage_images();
  void fix_labels(std::span<const int32_t> labels);
  void launch_step();
  // Runs the kernels once and makes the graph; parameters are 0 afterwards.
  void finish_step();
  // As restart() with parameters that are 0.
  void clear();
  TimedRuns time_alone(const Kernel& kernel);
  void upload(void* device, const void* host, int64_t bytes);
  void wait_until_idle();
  // Parameters or their moments, from the device.
  std::vector<float> canonical(const float* flat);
  // The times of a stage's step, from its marks.
  PipelineSeconds pipeline_seconds(int64_t step) const;

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
  std::map<int64_t, DeviceMemory> token_counts_;  // by number of tokens, for cuDNN's attention
  int64_t device_bytes_ = 0;

  std::optional<HostInput> host_input_;
  GraphExecHandle executable_;
  std::vector<Pass> passes_;             // of a stage's tasks, in their order
  std::vector<EventHandle> step_ends_;   // a ring, one more than steps in flight
  int64_t enqueued_ = 0, finished_ = 0;  // steps since restart()
};

/// Probes of what this GPU, and the links between all visible ones, do at best: launches, copies,
/// matrix products.
std::vector<Probe> gpu_probes(int gpu);

}  // namespace nearmetal::cuda
