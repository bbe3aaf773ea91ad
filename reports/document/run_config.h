// Everything that a run can be asked for.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "models/program.h"

namespace nearmetal {

/// Who chose a setting: the program, or a flag of the command line.
enum class Origin { standard, flag };

const char* to_string(Origin origin);  // "default", "flag"

/// Everything that `nearmetal run` can be asked for. The member initialisers are the only defaults;
/// an empty optional is filled according to the device (bench/cli/defaults.h).
struct RunConfig {
  std::string model = "resnet50";
  std::string device = "auto";  // auto, cpu, cuda
  int64_t gpu = 0;              // index among the visible GPUs
  std::optional<Precision> precision;
  std::optional<int64_t> batch;  // images per step; largest_that_fits until it is known
  int64_t image_size = 224;      // height and width in pixels
  int64_t classes = 1000;
  std::optional<int64_t> steps;       // of the timed window; else by duration_seconds
  double duration_seconds = 20;       // of the timed window, about
  std::optional<int64_t> warmup;      // fewest steps before the timed window
  std::string input = "device";       // device: images stay there; host: copied every step
  std::optional<std::string> launch;  // of GPU work: graph or stream
  std::optional<double> learning_rate;
  double momentum = 0.9;
  double weight_decay = 1e-4;
  bool zero_init = false;  // the last scale of each residual branch starts at 0
  std::optional<LossScale> loss_scale;
  int64_t seed = 1;
  std::string bind = "auto";         // to CPUs and memory next to the GPU: auto, or off
  int64_t threads = 0;               // of the CPU backend; 0: all that the process may use
  std::string update = "allreduce";  // of several ranks: allreduce, or independent of each other
  int64_t ranks = 0;                 // that there must be; 0: any number
  std::optional<int64_t> bucket_mib = 32;  // of gradients, sent at once; empty: to be measured
  std::string gradient_type = "computed";  // in which gradients travel: computed, fp32, bf16, fp16
  std::string all_reduce = "auto";         // of GPUs: as in Communication; auto: nccl
  std::string nccl_algorithm = "auto";  // by which NCCL must sum: auto (its choice), ring or tree
  bool forward_only = false;
  bool verify = false;
  bool profile = false;
  bool attribute = false;                  // time probes, by which a difference is explained
  std::optional<std::string> plan_cache;   // path, or "off"
  std::optional<std::string> plans;        // report whose plans are pinned
  std::optional<std::string> output;       // path, or "-"
  std::optional<std::string> environment;  // what the user says that this is
  std::optional<std::string> host_facts;   // file by the host's operator
  bool no_host_info = false;               // leave out names, UUIDs, serial numbers, folders
  double monitor_hz = 10;                  // samples per second of the timed window; 0: none
  bool force = false;
  bool json = false;
  bool quiet = false;
  bool no_progress = false;

  bool operator==(const RunConfig&) const = default;
};

/// Of a window: days, and memory for their times.
inline constexpr double most_steps = 1e7;

/// RunConfig::batch while the largest batch is still to be found.
inline constexpr int64_t largest_that_fits = 0;

/// Whether ranks train one network together, in step, each on images of its own.
inline bool exchanges_gradients(const RunConfig& config, int64_t world_size) {
  return world_size > 1 && config.update == "allreduce" && !config.forward_only;
}

/// By name of the setting, for every member of RunConfig.
using Origins = std::map<std::string, Origin>;

}  // namespace nearmetal
