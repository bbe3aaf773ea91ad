// Everything in a report, as plain data: what was asked, what was found, what was measured.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/value.h"
#include "models/kernel_choice.h"
#include "models/pipeline_schedule.h"
#include "models/sample_unit.h"
#include "reports/document/communication.h"
#include "reports/document/environment.h"
#include "reports/document/forecast.h"
#include "reports/document/run_config.h"
#include "reports/document/sharing_mode.h"
#include "reports/document/special_members.h"
#include "reports/document/survey.h"
#include "reports/document/warning.h"

namespace nearmetal {

/// A rank as a stage of a replica.
struct RankStage {
  int64_t stage = 0;
  int64_t replica = 0;
  std::string first_node, last_node;  // of the network, that it computes
  int64_t parameters = 0;
  // The memory that its program takes on the device, or would take by the other schedule.
  Maybe<int64_t> gpipe_bytes{}, one_forward_one_backward_bytes{};
  Maybe<PipelineSeconds> seconds{};  // the mean over the window
  int64_t boundary_bytes = 0;  // of a micro-batch to the stage behind, and back; 0: the last stage
  Maybe<double> boundary_seconds{};      // until known values were there, with nothing else on
  std::optional<bool> boundary_exact{};  // null: not tested
  std::vector<TaskMark> marks{};         // of one step, by the rank's own clock, from 0 on

  bool operator==(const RankStage&) const = default;
};

/// The bubble: the share of the stages' time in which they compute nothing.
struct PipelineBubble {
  Maybe<double> measured;   // 1 - sum of busy / sum of span, of the first replica's stages
  Maybe<double> simulated;  // of the same schedule, with these stages' mean times and no transfers
  // With each task's own time, and transfers as long as the lesser boundary_seconds of both stages.
  Maybe<double> simulated_with_transfers;
  double ideal = 0;  // (stages - 1) / (micro-batches + stages - 1): of equal stages
};

/// The figures of the stages of a run together.
struct PipelineFigures {
  std::string library;  // for values and gradients between stages, with its version
  int64_t stages = 1;
  int64_t replicas = 1;
  PipelineBubble bubble;
};

struct Tool {
  std::string version;
  Maybe<std::string> git_commit;
  Maybe<bool> dirty;  // built from sources that differ from the commit
  std::string build_type;
  std::string compiler;
  std::optional<std::string> build_id{};  // of executable and modules; none: not known

  bool operator==(const Tool&) const = default;
};

/// How the work grows with the number of ranks: the same batch on each rank as where there are
/// fewest, or the same batch in all.
enum class Scaling { weak, strong };
constexpr auto names_of(Scaling) { return std::array{"weak", "strong"}; }

struct ArmSpeedup {
  std::string against;  // the arm with the fewest ranks; itself: it is that one
  int64_t ranks = 1;
  double speedup = 1;     // against one rank of that arm
  double efficiency = 1;  // speedup / ranks
  // Bounds of the 95 % intervals.
  Maybe<double> speedup_lower{};
  Maybe<double> speedup_upper{};
  Maybe<double> efficiency_lower{};
  Maybe<double> efficiency_upper{};
};

struct GridPoint {
  std::string layout;                           // runs with each combination of the grid
  std::map<std::string, std::string> settings;  // of this combination, as layout files name them

  bool operator==(const GridPoint&) const = default;
};

/// Statistics of the step times in the timed window. Within one run only: says nothing about the
/// next run.
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

/// Quantiles of steps taken one at a time, each from its start to its end as the host sees it.
struct Latency {
  int64_t steps = 0;
  double median_seconds = 0;
  double p95_seconds = 0;
  Maybe<double> p99_seconds;

  bool operator==(const Latency&) const = default;
};

/// A probe (models/probe.h), timed right after the window. Rates follow: bytes / median_seconds.
struct ProbeTime {
  std::string name;  // "copy/device"
  std::string work;  // what one run does
  double bytes = 0;  // moved by one run
  double flops = 0;  // done by one run
  int64_t runs = 0;  // timed ones
  Maybe<double> median_seconds;
  Maybe<double> mean_seconds;
  Maybe<double> p99_seconds;

  bool operator==(const ProbeTime&) const = default;
};

/// The needs of one step on one rank's machine.
struct StepNeeds {
  int64_t kernels = 0;     // or primitives
  double input_bytes = 0;  // copied from the host; 0: images stay on the device
  bool input_pageable = false;
  LaunchMode launch = LaunchMode::graph;
  // Floors of the kernels at the rates of this rank's probes, summed over those that their bytes
  // bind (copy/device) and those that their operations bind (product/PRECISION).
  Maybe<double> memory_seconds;
  Maybe<double> compute_seconds;

  bool operator==(const StepNeeds&) const = default;
};

struct RankProbes {
  StepNeeds needs;
  std::vector<ProbeTime> probes;

  bool operator==(const RankProbes&) const = default;
};

/// Names of probes that are timed for every kind of device.
inline constexpr const char* quantum_probe = "cpu/quantum";
inline constexpr const char* memory_probe = "copy/device";
/// The host queues one step of the program and waits for nothing; not where the CPU computes.
inline constexpr const char* queue_probe = "launch/step";
inline constexpr const char* input_probe = "copy/h2d_pinned";
inline constexpr const char* pageable_probe = "copy/h2d_pageable";

/// How a published file is laid out.
enum class ImportFormat { mlperf, tf_cnn_benchmarks, nccl_tests, pairs };
constexpr auto names_of(ImportFormat) {
  return std::array{"mlperf", "tf_cnn_benchmarks", "nccl-tests", "pairs"};
}

struct ImportedSource {
  std::string file;    // its name, without folders
  std::string sha256;  // of the whole file
  ImportFormat format{};
  std::optional<std::string> origin{};  // where it was published, as --source says
};

/// One result. What the file does not say is not here.
struct ImportedRun {
  int64_t source = 0;                       // index into Report::sources
  std::optional<int64_t> line;              // where the result begins; empty: the file has no lines
  int64_t number = 0;                       // among the results of the file
  std::optional<std::string> started_at;    // RFC 3339, UTC
  std::optional<int64_t> world_size;        // number of GPUs
  SampleUnit sample = SampleUnit::image;    // of throughput
  std::optional<double> throughput;         // samples per second
  std::optional<double> bus_bandwidth;      // bytes per second
  std::map<std::string, std::string> work;  // what must agree between runs that are compared
  std::map<std::string, std::string> facts;  // what else is said, by the names of the file
};

/// The names that `work` may have, beside settings of a run.
inline constexpr std::array imported_work = {
    "benchmark",     "collective", "dataset", "global_batch_size",
    "message_bytes", "placement",  "redop",   "round",
    "system",        "table",      "type",    "variable_update"};

/// Whether the numbers were measured on what they speak of; predicted: forecasts; imported:
/// published by others.
enum class Kind { measured, emulated, predicted, imported };
enum class Status { complete, partial, failed };
constexpr auto names_of(Kind) {
  return std::array{"measured", "emulated", "predicted", "imported"};
}
constexpr auto names_of(Status) { return std::array{"complete", "partial", "failed"}; }

struct Invocation {
  std::vector<std::string> argv;
  std::string started_at;  // RFC 3339, UTC
  RunConfig config;        // as it ran: nothing left to "auto" but what the run did not need
  Origins origins;         // JSON: each setting of config is {value, origin}
  // The hash of the settings that change the work, not of output and display; empty: that of
  // imported results and of forecasts, which no settings led to.
  std::optional<std::string> config_sha256;
};

struct SetUp {
  std::string clock;           // where "start" comes from
  double start_seconds = 0;    // until the program reached its own first line
  double backend_seconds = 0;  // loading the backend, finding the device
  double prepare_seconds = 0;  // memory, plans and their tuning, initial parameters
  double first_step_seconds = 0;
  double total_seconds = 0;

  bool operator==(const SetUp&) const = default;
};

struct Binding {
  std::string cpus;            // allowed to it: "0-15,32-47"
  Maybe<int64_t> numa_node;    // to whose CPUs it bound itself; else why not
  Maybe<int64_t> memory_node;  // whose memory it prefers

  bool operator==(const Binding&) const = default;
};

/// A summary of values of steps, one after another.
struct Bin {
  int64_t count = 0;
  double sum = 0, least = 0, largest = 0;

  bool operator==(const Bin&) const = default;
};

struct Rank {
  NM_DECLARE_SPECIAL_MEMBERS(Rank);
  int64_t rank = 0;
  int64_t environment = 0;         // index into Report::environments
  std::optional<int64_t> gpu;      // index into its gpus; null on the CPU
  std::optional<int64_t> vm{};     // emulated, counted on each host; null: none, or not told
  std::optional<Binding> binding;  // null: of a version that does not bind
  Maybe<SetUp> set_up;
  // Every step since the first, warm-up included; where these are too many (steps.h) the bins.
  std::vector<double> step_seconds;
  std::vector<double> loss;
  std::vector<Bin> step_seconds_bins, loss_bins;
  std::optional<int64_t> window_first_step;  // null: it did not open, or not told
  int64_t skipped_updates = 0;               // in the window: gradient not finite
  Maybe<StepTime> step_time;
  Maybe<Latency> latency;
  Maybe<double> host_window_seconds;  // the window by the host's clock, a cross-check
  std::optional<double> window_start_unix_seconds;
  Maybe<int64_t> device_bytes;               // held by the training program
  Maybe<std::string> kernel_choices_sha256;  // of keys and implementations
  std::optional<Monitoring> monitoring;      // null: not asked for, or the window did not open
  // Per step of the window, the median: gradients on their way and nothing else to do.
  Maybe<double> exposed_communication_seconds;
  std::optional<RankProbes> probes;  // null: not asked for
  std::optional<RankStage> stage;    // null: there is no pipeline
  Maybe<std::vector<std::string>> mpi_transports{Unknown{"not told"}};  // by UCX: "tcp/eth0"

  bool operator==(const Rank&) const = default;
};

/// A figure of what was monitored on a rank.
inline Maybe<double> monitored(const Rank& rank, const std::string& name,
                               double MonitoredSeries::*figure = &MonitoredSeries::mean) {
  if (!rank.monitoring) return Unknown{"not monitored"};
  const MonitoredSeries* series = series_named(*rank.monitoring, name);
  return series != nullptr ? Maybe<double>(series->*figure) : Unknown{"not known here"};
}

struct TimedWindow {
  int64_t first_step = 0;
  int64_t steps = 0;
  int64_t samples = 0;  // of all ranks
  double seconds = 0;   // of the slowest rank

  bool operator==(const TimedWindow&) const = default;
};

/// How the window's start was found (bench/run/steady_state.h explains the test).
struct WarmUp {
  int64_t steps = 0;
  bool steady = false;  // false: the maximum was reached first; see `drift` for "not known"
  int64_t minimum_steps = 0;
  int64_t maximum_steps = 0;
  double maximum_seconds = 0;
  double limit = 0;                 // for both of the following
  Maybe<double> drift;              // over the last `judged_steps`, relative to their mean
  Maybe<double> halves_difference;  // of the medians of their halves, relative
  int64_t judged_steps = 0;
};

struct Verify {
  bool passed = false;
  int64_t samples = 0;
  int64_t steps = 0;  // taken; the check stops when the bound is reached
  int64_t maximum_steps = 0;
  double bound = 0;  // the loss must fall below
  Maybe<double> first_loss;
  Maybe<double> last_loss;
};

struct Proof {
  bool loss_finite = true;
  std::optional<int64_t> failed_step;  // first whose loss is not finite; not among the series
  Maybe<double> window_start_loss;
  Maybe<double> window_end_loss;
  Maybe<double> window_start_gradient_norm;
  Maybe<double> window_end_gradient_norm;
  std::optional<Verify> verify;
  std::optional<bool> outputs_finite;  // of inference: the logits of the last step
  // Proofs of ranks that exchange gradients:
  std::optional<bool> replicas_identical;  // parameters and momentum, at the end
  std::optional<bool> sums_exact;          // of known values, through the same buckets
};

/// What a step of --digest left.
struct StepDigest {
  int64_t step = 0;                 // from 1 on, since the start from the seed
  std::string loss;                 // in C's hexadecimal form, which has all bits
  std::vector<std::string> sha256;  // of each parameter's bytes in fp32: the first 16 digits

  bool operator==(const StepDigest&) const = default;
};

/// Ranks that computed the same, to the last bit.
struct DigestGroup {
  std::vector<int64_t> ranks;
  std::optional<std::string> kernels;   // their Rank::kernel_choices_sha256; none: not known
  std::vector<std::string> parameters;  // names, in the order of the graph
  std::vector<StepDigest> steps;
};

struct StepProfile {
  std::vector<ProfileEntry> entries;
  double sum_seconds = 0;               // of the entries
  double step_seconds = 0;              // median of the timed window
  Maybe<double> copy_bytes_per_second;  // ceilings, measured in the same run
  Maybe<double> matrix_flops_per_second;
  std::optional<double> cache_bytes;  // Ceilings::cache_bytes; none: not known, bytes set no floor
  Maybe<double> roofline_seconds;     // sum of floor_seconds() over the entries
  Maybe<double> share_of_roofline;    // roofline_seconds / step_seconds
};

struct ConcurrentJob {
  int64_t ranks = 1;                         // they follow those of the job before
  double throughput = 0;                     // samples per second
  double start_seconds = 0;                  // of its window, after that of the first
  std::optional<int64_t> first_step{};       // of its window
  std::optional<int64_t> steps{};            // in its window
  SampleUnit sample = SampleUnit::image;     // in which its throughput is
  std::optional<double> flops_per_sample{};  // null: not told
  std::optional<int64_t> parameters{};       // of its network; null: not told
  // The best of its buckets; null: it sums nothing, or not told.
  std::optional<double> bus_bandwidth_bytes_per_second{};
};

/// A process that trains nothing and was there to disturb the jobs of a run: what it did while they
/// were in their windows.
struct Neighbour {
  std::string load;  // copy, compute or pcie
  double runs_per_second = 0;
  double bytes_per_second = 0;  // read plus written, or over the link; 0: it moves none
  double flops_per_second = 0;
};

/// Time and cost of a training, which follow from a run for the price that a reader gives.
enum class CostFigure { hours, cost, cost_per_million, energy, energy_cost };
constexpr auto names_of(CostFigure) {
  return std::array{"training_hours", "training_cost", "cost_per_million_samples",
                    "energy_kilowatt_hours", "energy_cost"};
}

struct Run {
  NM_DECLARE_SPECIAL_MEMBERS(Run);
  std::string started_at;  // RFC 3339, UTC
  Status status = Status::complete;
  std::optional<std::string> failure;  // why it is not complete
  std::optional<Tool> tool;            // the one that ran it; none: unknown, or that of the report
  Device device = Device::cpu;
  std::string device_name;
  std::string device_reason;  // why this device
  int64_t world_size = 1;
  std::optional<int64_t> link_bits_per_second{};  // of the network between hosts, as it was claimed
  int64_t parameters = 0;                         // of unlike jobs, of all their networks
  Maybe<WarmUp> warm_up;
  Maybe<TimedWindow> window;
  SampleUnit sample = SampleUnit::image;
  Maybe<double> throughput;             // samples per second: window.samples / window.seconds
  double flops_per_sample = 0;          // of a step: training, or forward alone; of unlike jobs the
                                        // mean over the samples of all
  Maybe<double> flops_per_second;       // throughput x flops_per_sample, or the sum over the jobs
  Maybe<double> peak_flops_per_second;  // of all ranks' devices, by the data sheet
  Maybe<double> share_of_peak;
  Proof proof;
  std::optional<Communication> communication;
  std::optional<PipelineFigures> pipeline;  // null: each rank has the whole network
  std::vector<ConcurrentJob> jobs;          // empty: one alone
  std::vector<Neighbour> neighbours;
  std::optional<double> jain_fairness;  // of their throughputs: (sum x)^2 / (n sum x^2)
  std::vector<KernelChoice> kernel_choices;
  std::optional<StepProfile> profile;
  std::vector<DigestGroup> digests{};  // empty: not asked for
  std::vector<Rank> ranks;
  std::vector<Warning> warnings;
  std::map<CostFigure, Maybe<double>> costs{};  // those asked for; in no report
};

/// An arm that was asked for and could not be had on this machine.
struct UnsupportedArm {
  std::string name;
  std::string reason;

  bool operator==(const UnsupportedArm&) const = default;
};

/// A build of the program that an arm ran in place of the one that started it.
struct Executable {
  std::string path;
  std::string sha256;
  std::map<std::string, std::string> modules_sha256;  // of the modules that it loads, by their file

  bool operator==(const Executable&) const = default;
};

struct Arm {
  std::string name;
  Kind kind = Kind::measured;
  std::optional<RunConfig> config{};       // where it is not that of the invocation
  std::vector<RunConfig> workloads{};      // of each job, where they differ; `config` is the first
  std::optional<Scaling> scaling{};        // of a sweep over several numbers of ranks
  std::optional<ArmSpeedup> speedup{};     // the same
  std::optional<ArmShare> share{};         // none: what a job takes is its own
  std::optional<Executable> executable{};  // none: that of the report
  std::optional<GridPoint> grid{};         // of a sweep that has one
  std::optional<std::string> unsupported{};  // why there are no runs
  std::vector<Run> runs;
  std::vector<ImportedRun> imported{};      // in place of runs, of kind imported alone
  std::optional<ForecastPoint> forecast{};  // the same, of kind predicted
};

/// The document.
struct Report {
  NM_DECLARE_SPECIAL_MEMBERS(Report);
  std::string schema = "nearmetal/report";
  std::string schema_version = "1.18";  // major: breaks readers; minor: adds
  Kind kind = Kind::measured;
  Status status = Status::complete;
  int64_t exit_code = 0;
  Tool tool;
  Invocation invocation;
  std::vector<Environment> environments;
  std::vector<Arm> arms;
  std::vector<ImportedSource> sources{};   // of imported results
  std::vector<ForecastBasis> forecasts{};  // of kind predicted
  std::optional<Survey> survey{};          // null: the report is of no survey
};

/// The configuration that the runs of an arm were asked for.
inline const RunConfig& config_of(const Report& report, const Arm& arm) {
  return arm.config ? *arm.config : report.invocation.config;
}

}  // namespace nearmetal
