// Everything that a run can be asked for.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/names.h"
#include "models/pipeline_schedule.h"
#include "models/training_options.h"
#include "reports/document/communication.h"
#include "reports/document/environment.h"
#include "reports/document/special_members.h"

namespace nearmetal {

/// Who chose a setting: the program, or a flag of the command line.
enum class Origin { standard, flag };

constexpr auto names_of(Origin) { return std::array{"default", "flag"}; }

enum class Device { automatic, cpu, cuda };
constexpr auto names_of(Device) { return std::array{"auto", "cpu", "cuda"}; }

/// How the work of a step reaches the device: a GPU's as one CUDA graph, or kernel by kernel; a
/// CPU's is called.
enum class LaunchMode { graph, stream, call };
constexpr auto names_of(LaunchMode) { return std::array{"graph", "stream", "call"}; }

/// How the host waits for the end of a GPU's step: as CUDA chooses (it polls or yields), or
/// asleep until the GPU's interrupt, which in a VM the hypervisor delivers.
enum class HostWait { automatic, block };
constexpr auto names_of(HostWait) { return std::array{"auto", "block"}; }

/// Binding of ranks to CPUs and memory next to their GPU.
enum class Bind { automatic, off };
constexpr auto names_of(Bind) { return std::array{"auto", "off"}; }

/// The update of several ranks: gradients are averaged every step, or each rank trains for itself.
enum class Update { allreduce, independent };
constexpr auto names_of(Update) { return std::array{"allreduce", "independent"}; }

/// The type in which gradients travel between ranks; computed: as the backward pass leaves them.
enum class GradientType { computed, fp32, bf16, fp16 };
constexpr auto names_of(GradientType) { return std::array{"computed", "fp32", "bf16", "fp16"}; }

/// Everything that `nearmetal run` can be asked for. The member initialisers are the only defaults;
/// an empty optional is filled according to the device (bench/run/defaults.h).
struct RunConfig {
  NM_DECLARE_SPECIAL_MEMBERS(RunConfig);
  std::string model = "resnet50";
  Device device = Device::automatic;
  int64_t gpu = 0;  // index among the visible GPUs
  std::optional<Precision> precision;
  std::optional<int64_t> batch;  // images per step; largest_that_fits until it is known
  int64_t image_size = 224;      // height and width in pixels
  int64_t classes = 1000;
  std::optional<int64_t> sequence;  // tokens; empty for a network that reads images
  std::optional<int64_t> steps;     // of the timed window; else by duration_seconds
  double duration_seconds = 20;     // of the timed window, about
  std::optional<int64_t> warmup;    // fewest steps before the timed window
  Input input = Input::device;
  std::optional<LaunchMode> launch;  // of GPU work
  HostWait host_wait = HostWait::automatic;
  Kernels kernels = Kernels::fastest;
  int64_t accumulate = 1;              // micro-batches of a step, each of `batch` samples
  std::optional<Optimizer> optimizer;  // the network's own
  std::optional<double> learning_rate;
  double momentum = 0.9;  // of SGD
  std::optional<double> weight_decay;
  std::optional<LossScale> loss_scale;
  int64_t seed = 1;
  Bind bind = Bind::automatic;
  int64_t threads = 0;  // of the CPU backend; 0: all that the process may use
  Update update = Update::allreduce;
  int64_t ranks = 0;                       // required number; 0: any number
  std::optional<int64_t> bucket_mib = 32;  // of gradients, sent at once; empty: to be measured
  GradientType gradient_type = GradientType::computed;
  std::optional<AllReduceKind> all_reduce;                  // of GPUs
  NcclAlgorithm nccl_algorithm = NcclAlgorithm::automatic;  // by which NCCL must sum
  int64_t pipeline = 1;                                     // stages of the network, each on a rank
  int64_t micro_batches = 1;  // of a step, each of `batch` samples, through the stages
  Schedule schedule = Schedule::one_forward_one_backward;
  std::optional<std::string> cuts;  // behind which layers; empty until they are balanced
  bool zero_init = false;           // the last scale of each residual branch starts at 0
  bool forward_only = false;
  bool inference = false;
  bool verify = false;
  bool profile = false;
  bool attribute = false;                  // time probes, by which a difference is explained
  bool digest = false;                     // hash what some steps compute, to the last bit
  std::optional<std::string> plan_cache;   // path, or "off"
  std::optional<std::string> plans;        // report whose plans are pinned
  std::optional<std::string> output;       // path, or "-"
  std::optional<MachineKind> environment;  // the kind that the user claims
  std::optional<std::string> host_facts;   // file by the host's operator
  double monitor_hz = 10;                  // samples per second of the timed window; 0: none
  bool no_host_info = false;               // leave out names, UUIDs, serial numbers, folders
  bool force = false;
  bool json = false;
  bool quiet = false;
  bool no_progress = false;

  bool operator==(const RunConfig&) const = default;
};

/// The most steps of a window: days, and memory for their times.
inline constexpr double most_steps = 1e7;

/// RunConfig::batch while the largest batch is still to be found.
inline constexpr int64_t largest_that_fits = 0;

/// Whether steps have a backward pass and an update.
inline bool trains(const RunConfig& config) { return !config.forward_only && !config.inference; }

/// Micro-batches of a step.
inline int64_t micro_batches_of(const RunConfig& config) {
  return config.accumulate * config.micro_batches;
}

/// Samples of a step of one replica of the network; 0 where no batch fits.
inline int64_t step_samples(const RunConfig& config) {
  return config.batch.value_or(0) * micro_batches_of(config);
}

/// Ranks of a replica follow one another, in the order of their stages.
inline int64_t stage_of(const RunConfig& config, int64_t rank) { return rank % config.pipeline; }
/// "stage 1 of 2"; empty where each rank has the whole network.
inline std::string stage_text(const RunConfig& config, int64_t rank) {
  if (config.pipeline == 1) return "";
  return "stage " + std::to_string(stage_of(config, rank)) + " of " +
         std::to_string(config.pipeline);
}
inline int64_t replica_of(const RunConfig& config, int64_t rank) { return rank / config.pipeline; }
inline int64_t replicas_of(const RunConfig& config, int64_t world_size) {
  return world_size / config.pipeline;
}

/// Names what a step does, from `forward_only` and `inference`.
constexpr const char* pass_name(bool forward_only, bool inference) {
  return inference ? "inference" : forward_only ? "forward" : "training";
}

/// Whether several replicas train one network together, in step, each on images of its own.
inline bool exchanges_gradients(const RunConfig& config, int64_t world_size) {
  return replicas_of(config, world_size) > 1 && config.update == Update::allreduce &&
         trains(config);
}

/// Whether all ranks take each step together, as an exchange of gradients or a pipeline makes them.
inline bool in_step(const RunConfig& config, int64_t world_size) {
  return world_size == 1 || config.pipeline > 1 || exchanges_gradients(config, world_size);
}

/// The origins by name of the setting, for every member of RunConfig.
using Origins = std::map<std::string, Origin>;

struct DeviceWords {
  const char* shared;       // what several jobs have together
  const char* name;         // the same, once it was named
  const char* whole;        // all of it
  const char* part;         // what one of several jobs has of it, at most
  const char* memory;       // where the data of the only rank are
  const char* each_memory;  // where those of each of several ranks are
};

inline constexpr DeviceWords gpu_words = {
    "a GPU",         "the GPU",       "the whole GPU", "its part of the GPU, MIG device or vGPU",
    "on the device", "on each device"};
inline constexpr DeviceWords cpu_words = {"CPUs",           "the CPUs",
                                          "all the CPUs",   "its CPUs",
                                          "of host memory", "of host memory for each rank"};

constexpr const DeviceWords& words_of(Device device) {
  return device == Device::cpu ? cpu_words : gpu_words;
}

}  // namespace nearmetal
