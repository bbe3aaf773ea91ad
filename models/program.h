// The interface of a backend: a graph prepared for one device, the steps that it runs, and how
// their gradients meet those of the other ranks.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "models/kernel_choice.h"
#include "models/pipeline_schedule.h"
#include "models/probe.h"
#include "models/training_options.h"

namespace nearmetal {

class Graph;      // models/graph.h
struct GpuShare;  // models/gpu_share.h

/// A part of the flat gradient, in the memory of the program's device.
struct GradientBucket {
  void* data = nullptr;  // on a GPU aligned to 16 bytes
  int64_t elements = 0;
  Precision type = Precision::fp32;  // of an element: fp32, bf16 or fp16

  int64_t bytes() const { return elements * element_bytes(type); }
};

/// Where the gradient of a parameter lies among those that ranks sum: they sum, and cut into
/// buckets, what lies in the same place.
struct GradientPlace {
  int64_t begin = 0;     // in elements
  int64_t elements = 0;  // with padding
  std::string layout{};  // of its dimensions, as far as a backend chooses one
};

/// The result of a sum of known values, with nothing else going on.
struct BucketTest {
  int64_t bytes = 0;
  Precision type = Precision::fp32;
  double seconds = 0;  // of one sum: the median, of this rank
  bool exact = false;  // every value that came back is the sum
};

/// Sums gradients over all ranks. A Program starts each bucket as soon as its backward pass has
/// completed it, in the same order on every rank, and finishes all before its update, which divides
/// by ranks(). `stream` is the cudaStream_t that the step is recorded on, null on the CPU.
class AllReduce {
 public:
  virtual ~AllReduce() = default;
  /// The library that sums, and its version: "nccl 2.28.9".
  virtual std::string library() const = 0;
  virtual int ranks() const = 0;
  /// The buckets of the program that this serves, in the order in which it starts them.
  virtual void bind(std::vector<GradientBucket> buckets) = 0;
  /// Sums `count` buckets from `first` on, which are complete after the work now on the stream.
  virtual void start(int first, int count, void* stream) = 0;
  /// Makes later work on the stream wait for the sums of all buckets.
  virtual void finish(void* stream) = 0;
  /// Sums values that are known into each bucket, one after another, `repeats` times; every rank
  /// calls it between steps. What the buckets held is lost.
  virtual std::vector<BucketTest> test(int repeats) = 0;
};

inline const std::atomic<int> never_stopped = 0;

struct ProgramOptions {
  int64_t batch_size = 1;
  // Batches of a step, one after another, before one update with the mean of their gradients.
  int64_t micro_batches = 1;
  PipelinePlace pipeline{};  // of a graph that is a stage
  Precision precision = Precision::fp32;
  bool forward_only = false;  // no gradient, no update; true for a graph without a loss
  Input input = Input::device;
  Kernels kernels = Kernels::fastest;
  bool launch_as_graph = true;  // GPU: the step as one CUDA graph, else kernel by kernel
  bool host_sleeps = false;     // GPU: while it waits for a step, else as CUDA chooses
  OptimizerOptions optimizer;
  LossScale loss_scale;
  // The type of gradients on their way to other ranks: fp32, bf16 or fp16; empty: as computed.
  std::optional<Precision> gradient_type;
  uint64_t data_seed = 1;                    // of images and labels; differs from rank to rank
  int gpu = 0;                               // index among the visible GPUs
  int threads = 0;                           // CPU backend; 0 takes all that this process may use
  std::vector<KernelChoice> kernel_choices;  // known choices; an operation not among them is tuned
  bool kernel_choices_pinned =
      false;  // refuse instead to tune, or to replace a plan that does not load
  // Where it is not 0, what times operations before the first step ends with JobFailure; never
  // null.
  const std::atomic<int>* stop = &never_stopped;

  int64_t step_images() const { return micro_batches * batch_size; }
  /// The tasks of this stage in their order.
  std::vector<StageTask> tasks() const {
    return stage_tasks(pipeline.schedule, pipeline.stages, static_cast<int>(micro_batches),
                       pipeline.stage);
  }
};

/// Bytes of one micro-batch that a stage receives from the stage before it and sends to the one
/// behind; as many of gradients go the other way. 0: there is no such stage.
struct BoundaryBytes {
  int64_t received = 0, sent = 0;
};
BoundaryBytes bytes_of_boundaries(const Graph& graph, const ProgramOptions& options);

/// Throws OutOfMemory, which tells the largest batch, unless the bytes are there. `memory`:
/// "memory". `largest_batch` is called where they are not.
void require_memory(const ProgramOptions& options, int64_t needed, int64_t available,
                    const std::string& memory, const std::function<int64_t()>& largest_batch);

/// The largest batch that fits, from `good`, which does, to below `bad`, which does not.
int64_t largest_fitting(int64_t good, int64_t bad, const std::function<bool(int64_t batch)>& fits);

inline bool is_adamw(const ProgramOptions& options) {
  return options.optimizer.kind == Optimizer::adamw;
}

/// Throws std::invalid_argument for a step without images, and for several micro-batches without a
/// gradient that they share.
inline void require_sizes(const ProgramOptions& options) {
  if (options.batch_size < 1) throw std::invalid_argument("the batch size must be at least 1");
  if (options.micro_batches < 1) {
    throw std::invalid_argument("the number of micro-batches must be at least 1");
  }
  if (options.micro_batches > 1 && options.forward_only) {
    throw std::invalid_argument("micro-batches share a gradient, and a forward pass has none");
  }
}

struct StepRecord {
  double seconds = 0;  // from the end of the step before (or the start of work) to its end
  // On a stage, too, these are the whole network's.
  float loss = 0;           // mean over all images, unscaled; 0 where the graph has none
  float gradient_norm = 0;  // Euclidean, over all parameters, unscaled; 0 when forward_only
  bool update_skipped = false;
  double exposed_communication_seconds = 0;  // of `seconds`: nothing but gradients on their way
  PipelineSeconds pipeline{};                // of a stage
};

struct Profile {
  std::vector<ProfileEntry> entries;
  // Ceilings of the device, measured in the same call; 0 where the backend does not measure them.
  double copy_bytes_per_second = 0;
  double matrix_flops_per_second = 0;
};

/// A graph prepared for one device: memory placed, kernels chosen, nothing left to decide.
/// One step = labels drawn, forward, loss, backward, update; of a graph without a loss it is the
/// forward pass. With several micro-batches forward, loss and backward follow one another for each,
/// so that batch norm sees one of them at a time, and their loss and gradient is the mean. Vectors
/// of parameters are in the canonical layout of Graph. Not thread-safe. Errors of the device throw
/// std::runtime_error.
class Program {
 public:
  virtual ~Program() = default;

  /// How many steps may be queued before wait_step() must be called: 1 where a step runs at once.
  virtual int max_steps_in_flight() const = 0;
  /// Queues one step; on a GPU it returns without waiting for the device.
  virtual void enqueue_step() = 0;
  /// Waits for the oldest queued step.
  virtual StepRecord wait_step() = 0;

  /// From now on the gradient of every step is the mean over the ranks of `all_reduce`, which must
  /// outlive this program: sent in buckets of at least `bucket_bytes` (0: one) during the backward
  /// pass. Where ProgramOptions::gradient_type is not the type of a gradient, it is converted
  /// before it is sent, and its sum back before the update. All ranks call it, with no step queued
  /// and before restart(); again with the same `all_reduce` to send other buckets. Not for
  /// forward_only.
  virtual void exchange_gradients(AllReduce& all_reduce, int64_t bucket_bytes) = 0;
  /// By parameter; not for forward_only.
  virtual std::vector<GradientPlace> gradient_places() const = 0;

  /// Joins this stage to its neighbours by `links`, which must outlive the program. All stages call
  /// it before anything else that takes a step. Throws std::logic_error for a graph that is no
  /// stage.
  virtual void connect_stages(StageLinks&) { throw std::logic_error("the graph is no stage"); }
  /// When the last step computed each of its tasks, of a stage; begins anywhere.
  virtual std::vector<TaskMark> task_marks() { return {}; }
  /// Bytes that one micro-batch sends to the stage behind, and as many gradients come back; 0
  /// without one.
  virtual int64_t boundary_bytes() const { return 0; }

  /// From the next restart() on updates take this rate in place of that of
  /// ProgramOptions::optimizer.
  virtual void use_learning_rate(double rate) = 0;
  /// Sets parameters; momentum and second moments become 0, running statistics, loss scale, the
  /// count of updates and that of the steps that draws the labels those of a new program.
  virtual void restart(std::span<const float> parameters) = 0;
  virtual std::vector<float> parameters() = 0;
  /// The momentum of SGD, or AdamW's first moment of the gradient.
  virtual std::vector<float> momentum() = 0;
  /// AdamW's second moment of the gradient; else empty.
  virtual std::vector<float> second_moments() = 0;
  /// The gradients of the last step, before momentum and weight decay, unscaled; with an AllReduce
  /// the mean over its ranks.
  virtual std::vector<float> gradients() = 0;
  /// Running mean, then running variance, of every batch norm in graph order.
  virtual std::vector<float> running_statistics() = 0;
  /// The logits that the last step left, [batch, classes] or of spans [batch, tokens, 2]; empty for
  /// a graph with a loss.
  virtual std::vector<float> logits() = 0;

  /// Trains on these images from now on, one micro-batch after another: `images` [micro-batches x
  /// batch, channels, height, width], labels within the classes.
  virtual void use_batch(std::span<const float> images, std::span<const int32_t> labels) = 0;
  /// The same for a graph that reads tokens: ids [micro-batches x batch, tokens], and of each
  /// sequence its labels behind one another. Throws std::logic_error for a graph of images.
  virtual void use_sequences(std::span<const int32_t> /*tokens*/,
                             std::span<const int32_t> /*labels*/) {
    throw std::logic_error("it reads images");
  }
  /// Back to the synthetic samples of data_seed: images that stay, or tokens redrawn every step,
  /// with labels redrawn every step.
  virtual void use_synthetic_batch() = 0;

  virtual std::vector<KernelChoice> kernel_choices() const = 0;
  /// Times every kernel of the step alone, `repeats` times, and where asked for the ceilings, which
  /// takes a second more on a CPU; parameters change meanwhile.
  virtual Profile profile(int repeats, bool with_ceilings) = 0;
  /// Each kernel of the step again and again, its operands not in the cache of a GPU: named
  /// "step/PHASE/NODES". Parameters change meanwhile; the program must outlive them.
  virtual std::vector<Probe> probes() = 0;
  /// Bytes that this program holds on its device.
  virtual int64_t device_bytes() const = 0;
  /// Bytes that it would hold with the same kernels in the order of this schedule.
  virtual int64_t device_bytes_by(Schedule schedule) const = 0;
};

/// A device as a backend sees it. Unknown values are empty or 0.
struct DeviceInfo {
  std::string name;
  std::string uuid;    // GPU
  std::string pci_id;  // GPU
  std::string driver_version;
  int multiprocessors = 0;  // GPU
  std::string compute_capability;
  std::optional<bool> dma_buf;  // GPU: its memory can be shared with NICs as a dma-buf
  // Whether Backend::choose_kernels() leaves nothing behind that slows a program built after it.
  bool times_kernels_apart = true;
  int64_t memory_bytes = 0;
  int64_t free_memory_bytes = 0;
  std::map<std::string, std::string> libraries;  // name to version, as loaded
  // By the data sheet, dense; not there when not known.
  std::map<Precision, double> peak_flops_per_second;
  double peak_memory_bytes_per_second = 0;
  // The cache where kernels may find their operands; infinite: not known. 0 for GPUs: their kernels
  // are timed, and follow one another in a step, with operands that it does not hold.
  double cache_bytes = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  /// Throws std::runtime_error where there is no such device or its driver does not work.
  virtual DeviceInfo describe(int gpu) = 0;
  /// All that this process does from now on keeps to its part. Throws NotSupported where the device
  /// cannot be split into such parts.
  virtual void take_share(int gpu, const GpuShare& part) = 0;
  /// Visible GPUs; 1 where there are no GPUs to choose from.
  virtual int device_count() { return 1; }
  /// The choices that prepare() would make, to be known to other ranks; empty where it makes none.
  virtual std::vector<KernelChoice> choose_kernels(const Graph&, const ProgramOptions&) {
    return {};
  }
  /// Throws std::invalid_argument for what this device cannot do, OutOfMemory, std::runtime_error.
  virtual std::unique_ptr<Program> prepare(const Graph& graph, const ProgramOptions& options) = 0;
  /// The memory that such a program takes on the device.
  virtual int64_t bytes_needed(const Graph& graph, const ProgramOptions& options) = 0;
  /// The largest batch that fits into the memory now free.
  virtual int64_t largest_batch(const Graph& graph, const ProgramOptions& options) = 0;
  /// The probes of the device itself and the paths to it: copies, matrix products ("copy/device",
  /// "product/fp16": the ceilings of a profile), launches.
  virtual std::vector<Probe> probes(int gpu) = 0;
};

}  // namespace nearmetal
