// Everything in a report, as plain data: what was asked, what was found, what was measured.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/program.h"

namespace nearmetal {

/// Why a value is not known.
struct Unknown {
  std::string reason;
};

/// A value, or why there is none. In JSON: null, with the reason under the same name in the
/// object's `unknown`. A plain std::optional is null where the thing does not apply or was not
/// asked for.
template <class T>
struct Maybe {
  std::optional<T> value;
  std::string reason = "not determined";

  Maybe() = default;
  Maybe(T known) : value(std::move(known)) {}
  Maybe(Unknown unknown) : reason(std::move(unknown.reason)) {}

  explicit operator bool() const { return value.has_value(); }
  const T& operator*() const { return *value; }
  const T* operator->() const { return &*value; }
  bool operator==(const Maybe& other) const {
    return value == other.value && (value || reason == other.reason);
  }
};

/// Whether the numbers were measured on what they speak of.
enum class Kind { measured, emulated, predicted };
enum class Status { complete, partial, failed };
/// Who chose a setting: the program, or a flag of the command line.
enum class Origin { standard, flag };

const char* to_string(Kind kind);
const char* to_string(Status status);
const char* to_string(Origin origin);  // "default", "flag"

/// Everything that `nearmetal run` can be asked for. The member initialisers are the only defaults;
/// an empty optional is filled according to the device (bench/defaults.h).
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
  int64_t threads = 0;  // of the CPU backend; 0: all that the process may use
  bool forward_only = false;
  bool verify = false;
  bool profile = false;
  std::optional<std::string> plan_cache;  // path, or "off"
  std::optional<std::string> plans;       // report whose plans are pinned
  std::optional<std::string> output;      // path, or "-"
  bool force = false;
  bool json = false;
  bool quiet = false;
  bool no_progress = false;

  bool operator==(const RunConfig&) const = default;
};

/// RunConfig::batch while the largest batch is still to be found.
inline constexpr int64_t largest_that_fits = 0;

/// By name of the setting, for every member of RunConfig.
using Origins = std::map<std::string, Origin>;

struct Warning {
  std::string code;  // stable, for scripts: lower case with underscores
  std::string text;

  bool operator==(const Warning&) const = default;
};

struct Tool {
  std::string version;
  Maybe<std::string> git_commit;
  Maybe<bool> dirty;  // built from sources that differ from the commit
  std::string build_type;
  std::string compiler;

  bool operator==(const Tool&) const = default;
};

struct Invocation {
  std::vector<std::string> argv;
  std::string started_at;     // RFC 3339, UTC
  RunConfig config;           // as it ran: nothing left to "auto" but what the run did not need
  Origins origins;            // JSON: each setting of config is {value, origin}
  std::string config_sha256;  // of the settings that change the work, not of output and display

  bool operator==(const Invocation&) const = default;
};

struct Gpu {
  std::string name;
  Maybe<std::string> uuid;
  Maybe<std::string> pci_id;
  Maybe<int64_t> memory_bytes;
  Maybe<int64_t> multiprocessors;
  Maybe<std::string> compute_capability;
  Maybe<std::string> driver_version;

  bool operator==(const Gpu&) const = default;
};

/// One operating-system instance as its ranks found it: evidence, no claims.
struct Environment {
  std::string host_name;
  std::string kernel;
  Maybe<std::string> distribution;
  std::string architecture;
  Maybe<std::string> cpu_model;
  int64_t logical_cpus = 1;  // online
  int64_t usable_cpus = 1;   // by this process: affinity mask
  Maybe<double> cpu_quota;   // of the control group, in CPUs
  Maybe<int64_t> memory_bytes;
  Maybe<int64_t> memory_limit_bytes;             // of the control group
  Maybe<bool> hypervisor_cpu_flag;               // CPUID leaf 1: ECX bit 31
  std::vector<Gpu> gpus;                         // those used
  std::map<std::string, std::string> libraries;  // name to version, as loaded
  std::map<std::string, std::string> variables;  // environment variables by allow-list
  bool ld_preload = false;

  bool operator==(const Environment&) const = default;
};

/// From the start of the process to the end of the first training step.
struct SetUp {
  std::string clock;           // where "start" comes from
  double start_seconds = 0;    // until the program reached its own first line
  double backend_seconds = 0;  // loading the backend, finding the device
  double prepare_seconds = 0;  // memory, plans and their tuning, initial parameters
  double first_step_seconds = 0;
  double total_seconds = 0;

  bool operator==(const SetUp&) const = default;
};

/// Of the step times in the timed window. Within one run only: says nothing about the next run.
struct StepTime {
  double median_seconds = 0;
  double p95_seconds = 0;
  double p99_seconds = 0;
  double jitter_seconds = 0;              // 1.4826 x median absolute deviation
  Maybe<double> drift;                    // least-squares change over the window / mean
  Maybe<double> autocorrelation;          // of neighbouring steps
  Maybe<double> relative_standard_error;  // of the mean, by batch means
  Maybe<double> effective_steps;          // independent steps worth the same

  bool operator==(const StepTime&) const = default;
};

struct Rank {
  int64_t rank = 0;
  int64_t environment = 0;     // index into Report::environments
  std::optional<int64_t> gpu;  // index into its gpus; null on the CPU
  Maybe<SetUp> set_up;
  // Every step since the first, warm-up included; TimedWindow::first_step says where the window
  // starts.
  std::vector<double> step_seconds;
  std::vector<double> loss;
  int64_t skipped_updates = 0;  // in the window: gradient not finite
  Maybe<StepTime> step_time;
  Maybe<double> host_window_seconds;  // the window by the host's clock, a cross-check
  Maybe<int64_t> device_bytes;        // held by the training program
  Maybe<std::string> plans_sha256;    // of keys and implementations

  bool operator==(const Rank&) const = default;
};

/// What was timed.
struct TimedWindow {
  int64_t first_step = 0;
  int64_t steps = 0;
  int64_t images = 0;  // of all ranks
  double seconds = 0;  // of the slowest rank

  bool operator==(const TimedWindow&) const = default;
};

/// How the window's start was found (bench/steady_state.h explains the test).
struct WarmUp {
  int64_t steps = 0;
  bool steady = false;  // false: the maximum was reached first
  int64_t minimum_steps = 0;
  int64_t maximum_steps = 0;
  double maximum_seconds = 0;
  double limit = 0;                 // for both of the following
  Maybe<double> drift;              // over the last `judged_steps`, relative to their mean
  Maybe<double> halves_difference;  // of the medians of their halves, relative
  int64_t judged_steps = 0;

  bool operator==(const WarmUp&) const = default;
};

/// Training on a small fixed set, which a network that learns must memorise.
struct Verify {
  bool passed = false;
  int64_t images = 0;
  int64_t steps = 0;  // taken; the check stops when the bound is reached
  int64_t maximum_steps = 0;
  double bound = 0;  // the loss must fall below
  Maybe<double> first_loss;
  Maybe<double> last_loss;

  bool operator==(const Verify&) const = default;
};

/// That real training took place.
struct Proof {
  bool loss_finite = true;
  std::optional<int64_t> failed_step;  // first whose loss is not finite; not among the series
  Maybe<double> window_start_loss;
  Maybe<double> window_end_loss;
  Maybe<double> window_start_gradient_norm;
  Maybe<double> window_end_gradient_norm;
  std::optional<Verify> verify;

  bool operator==(const Proof&) const = default;
};

/// Where the step goes: each kernel or primitive timed alone.
struct StepProfile {
  std::vector<ProfileEntry> entries;
  double sum_seconds = 0;               // of the entries
  double step_seconds = 0;              // median of the timed window
  Maybe<double> copy_bytes_per_second;  // ceilings, measured in the same run
  Maybe<double> matrix_flops_per_second;
  Maybe<double> roofline_seconds;   // sum of max(flops / matrix ceiling, bytes / copy ceiling)
  Maybe<double> share_of_roofline;  // roofline_seconds / step_seconds
};

/// One launch.
struct Run {
  std::string started_at;  // RFC 3339, UTC
  Status status = Status::complete;
  std::optional<std::string> failure;  // why it is not complete
  std::string device;                  // cpu, cuda
  std::string device_name;
  std::string device_reason;  // why this device
  int64_t world_size = 1;
  int64_t parameters = 0;
  Maybe<WarmUp> warm_up;
  Maybe<TimedWindow> window;
  Maybe<double> throughput_images_per_second;  // window.images / window.seconds
  double flops_per_image = 0;                  // of a step: training, or forward alone
  Maybe<double> flops_per_second;              // throughput x flops_per_image
  Maybe<double> peak_flops_per_second;         // of all ranks' devices, by the data sheet
  Maybe<double> share_of_peak;
  Proof proof;
  std::vector<Plan> plans;
  std::optional<StepProfile> profile;
  std::vector<Rank> ranks;
  std::vector<Warning> warnings;
};

/// One of the configurations of a report, measured by one or more runs.
struct Arm {
  std::string name;
  Kind kind = Kind::measured;
  std::vector<Run> runs;
};

/// The document.
struct Report {
  std::string schema = "nearmetal/report";
  std::string schema_version = "1.0";  // major: breaks readers; minor: adds
  Kind kind = Kind::measured;
  Status status = Status::complete;
  int64_t exit_code = 0;
  Tool tool;
  Invocation invocation;
  std::vector<Environment> environments;
  std::vector<Arm> arms;
};

}  // namespace nearmetal
