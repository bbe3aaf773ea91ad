// Figures of a run: those that are compared, and what follows from its window.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "reports/document/steps.h"
#include "reports/document/types.h"

namespace nearmetal {

/// Steps that a window must have for these quantiles to be told.
inline constexpr int64_t fewest_steps_for_p95 = 20;
inline constexpr int64_t fewest_steps_for_p99 = 100;

struct Metric {
  const char* name;
  const char* base_unit;  // of the value
  const char* unit;       // as tables show it
  double shown_per_unit;  // factor from the value to what tables show
  bool higher_is_better;
  bool is_throughput;  // of runs in one unit of samples; the others are of any run
  Maybe<double> (*value_of)(const Run& run);
  bool is_of_a_step = false;  // which is longer with a larger batch
  bool is_exact = false;      // without noise: of runs that agree it is known
};

/// The metrics of runs in these units, each once. Throughput in the first unit comes first: it is
/// compared when nothing else is asked for. Times are those of the slowest rank.
std::vector<const Metric*> metrics_of(std::span<const SampleUnit> units);
/// The same, and those compared where they are asked for: the throughput of each GPU, jitter,
/// memory, exposed communication, samples per joule, and latency.
std::vector<const Metric*> all_metrics_of(std::span<const SampleUnit> units);
/// Quantiles of inference steps that were taken one at a time.
std::span<const Metric> latency_metrics();
bool has_latency(const Run& run);
const Metric& throughput_metric(SampleUnit unit);
/// The metric that results of nccl-tests have in place of a throughput.
const Metric& bus_bandwidth_metric();

/// Throws std::invalid_argument that names those there are.
const Metric& metric_from(const std::string& name);

/// Samples per second.
double throughput_of(const TimedWindow& window);
double mean_step_seconds(const TimedWindow& window);
/// The GPUs that ranks have, each once. A MIG device is a part of one.
Maybe<double> gpus_of(const Run& run);
/// What a run takes: set-up, warm-up and window.
Maybe<double> run_seconds(const Run& run);

/// Sets the throughput in samples per second, and from it, run.flops_per_sample and
/// run.peak_flops_per_second the flop rate and the share of the peak. All three become unknown with
/// the reason of the throughput; the share alone with that of the peak.
void set_throughput(const Maybe<double>& throughput, Run& run);

/// Marks the run as failed. It loses its throughput, which would be a figure without proof.
void fail_run(const std::string& why, Run& run);

/// "the run is failed: out of memory".
std::string status_text(const Run& run);

/// Version and commit of a build; where these do not name its sources, its build ID, too.
std::string build_text(const Tool& tool);

// The samples of a job from those of its ranks: counted here, by all who count them.

/// What the samples of all its ranks are of the job: the ranks of a replica of a pipeline have the
/// same ones.
double samples_of_job(const RunConfig& config, double samples_of_ranks);

/// Samples of a job in a time. Steps that it cuts count by their share.
double samples_within(const RunConfig& config, std::span<const Rank> ranks, int64_t first_step,
                      const TimeSpan& time);

/// Why there is no throughput of all of them.
inline constexpr const char* unlike_work = "its jobs do unlike work, which does not add";

bool does_unlike_work(const std::vector<RunConfig>& workloads);

/// The run as it shows one of such jobs, as if it were the only one; its warnings are those of that
/// job and of the whole. For a run that is not complete it is known that it is so, and why.
Run run_of_job(const Run& run, size_t job);

}  // namespace nearmetal
