#include "reports/document/metric.h"

#include <algorithm>
#include <array>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/text.h"
#include "reports/document/settings.h"

namespace nearmetal {
namespace {

// The largest of the times that each rank has.
template <auto times, auto seconds_of>
Maybe<double> slowest(const Run& run) {
  Maybe<double> slowest = Unknown{"the run has no rank"};
  for (const Rank& rank : run.ranks) {
    const auto& found = rank.*times;
    if (!found) return Unknown{found.reason};
    Maybe<double> seconds = (*found).*seconds_of;
    if (!seconds) return seconds;
    slowest = slowest ? std::max(*slowest, *seconds) : *seconds;
  }
  return slowest;
}

// Ratios need one above 0.
Maybe<double> above_zero(const Maybe<double>& value) {
  return value && *value == 0 ? Unknown{"it is 0"} : value;
}

// Of so many steps or more: of fewer, a quantile is little more than the longest, and of one there
// is no jitter.
template <auto seconds_of, int64_t fewest>
Maybe<double> of_steps(const Run& run) {
  if (run.window && run.window->steps < fewest) {
    if (run.window->steps == 1) return Unknown{"its window is one step"};
    return Unknown{"its window has " + counted(run.window->steps, "step") + ", fewer than " +
                   std::to_string(fewest)};
  }
  return above_zero(slowest<&Rank::step_time, seconds_of>(run));
}

template <SampleUnit unit>
Maybe<double> throughput(const Run& run) {
  if (run.sample == unit) return run.throughput;
  return Unknown{std::string("it was fed ") + words_of(run.sample).plural};
}

constexpr Metric rate_metric(const char* name, const char* unit,
                             Maybe<double> (*value_of)(const Run& run)) {
  return {name, unit, unit, 1, true, true, value_of};
}
template <SampleUnit unit>
constexpr Metric throughput_in = rate_metric(words_of(unit).throughput_key, words_of(unit).rate,
                                             throughput<unit>);
// By unit.
constexpr std::array throughput_metrics = {throughput_in<SampleUnit::image>,
                                           throughput_in<SampleUnit::sequence>};

constexpr Metric milliseconds(const char* name, Maybe<double> (*value_of)(const Run& run)) {
  return {name, "s", "ms", 1e3, false, false, value_of, true};
}
constexpr Metric seconds(const char* name, Maybe<double> (*value_of)(const Run& run)) {
  return {name, "s", "s", 1, false, false, value_of};
}

constexpr std::array metrics_of_any_unit = {
    milliseconds("median_step_seconds", slowest<&Rank::step_time, &StepTime::median_seconds>),
    milliseconds("p95_step_seconds", of_steps<&StepTime::p95_seconds, fewest_steps_for_p95>),
    milliseconds("p99_step_seconds", of_steps<&StepTime::p99_seconds, fewest_steps_for_p99>),
    seconds("set_up_seconds", slowest<&Rank::set_up, &SetUp::total_seconds>),
    seconds("prepare_seconds", slowest<&Rank::set_up, &SetUp::prepare_seconds>),
};

constexpr std::array metrics_of_latency = {
    milliseconds("median_latency_seconds", slowest<&Rank::latency, &Latency::median_seconds>),
    milliseconds("p95_latency_seconds", slowest<&Rank::latency, &Latency::p95_seconds>),
    milliseconds("p99_latency_seconds", slowest<&Rank::latency, &Latency::p99_seconds>),
};

template <SampleUnit unit>
Maybe<double> throughput_per_gpu(const Run& run) {
  const Maybe<double> all = throughput<unit>(run);
  const Maybe<double> gpus = gpus_of(run);
  if (!all || !gpus) return Unknown{all ? gpus.reason : all.reason};
  return *all / *gpus;
}

template <SampleUnit unit>
const Metric& per_gpu_metric() {
  static const std::string name = std::string(words_of(unit).throughput_key) + "_per_gpu";
  static const std::string rate = std::string(words_of(unit).rate) + " per GPU";
  static const Metric metric = rate_metric(name.c_str(), rate.c_str(), throughput_per_gpu<unit>);
  return metric;
}

Maybe<double> exposed_communication(const Run& run) {
  if (run.communication) return above_zero(run.communication->exposed_seconds_per_step);
  return Unknown{"no gradients are exchanged"};
}

Maybe<double> most_device_bytes(const Run& run) {
  Maybe<double> most = Unknown{"the run has no rank"};
  for (const Rank& rank : run.ranks) {
    if (!rank.device_bytes) return Unknown{rank.device_bytes.reason};
    most = std::max(most.value.value_or(0), static_cast<double>(*rank.device_bytes));
  }
  return most;
}

// By the counters of all GPUs, each once.
template <SampleUnit unit>
Maybe<double> samples_per_joule(const Run& run) {
  if (run.sample != unit) return throughput<unit>(run);
  if (!run.window) return Unknown{run.window.reason};
  if (!run.jobs.empty()) return Unknown{"its jobs have windows of their own"};
  if (Maybe<double> whole = gpus_of(run); !whole) return whole;
  std::set<std::pair<int64_t, int64_t>> gpus;
  double joules = 0;
  for (const Rank& rank : run.ranks) {
    if (!rank.monitoring) return Unknown{"no GPU was monitored"};
    if (!rank.monitoring->joules) return Unknown{rank.monitoring->joules.reason};
    if (gpus.emplace(rank.environment, *rank.gpu).second) joules += *rank.monitoring->joules;
  }
  if (!(joules > 0)) return Unknown{"the counter of energy stood still"};
  return static_cast<double>(run.window->samples) / joules;
}

template <SampleUnit unit>
constexpr Metric per_joule_metric = {
    words_of(unit).per_joule_key, "1/J", words_of(unit).per_joule, 1, true, false,
    samples_per_joule<unit>};

constexpr std::array metrics_on_request = {
    milliseconds("jitter_seconds", of_steps<&StepTime::jitter_seconds, 2>),
    milliseconds("exposed_communication_seconds", exposed_communication),
    Metric{.name = "device_bytes",
           .base_unit = "B",
           .unit = "GB",
           .shown_per_unit = 1e-9,
           .higher_is_better = false,
           .is_throughput = false,
           .value_of = most_device_bytes,
           .is_exact = true},
    per_joule_metric<SampleUnit::image>, per_joule_metric<SampleUnit::sequence>};

template <CostFigure figure>
constexpr Metric cost_metric(const char* unit) {
  const auto value_of = [](const Run& run) {
    const auto found = run.costs.find(figure);
    return found == run.costs.end() ? Unknown{"it was not asked for"} : found->second;
  };
  return {to_string(figure), unit, unit, 1, false, false, value_of};
}

constexpr std::array metrics_of_cost = {
    cost_metric<CostFigure::hours>("h"), cost_metric<CostFigure::cost>("currency"),
    cost_metric<CostFigure::cost_per_million>("currency"), cost_metric<CostFigure::energy>("kWh"),
    cost_metric<CostFigure::energy_cost>("currency")};

Maybe<double> bus_bandwidth(const Run& run) {
  if (run.communication) return run.communication->best_bus_bandwidth_bytes_per_second;
  return Unknown{"no gradients are exchanged"};
}

void keep_warnings_of(int64_t job, std::vector<Warning>& warnings) {
  std::erase_if(warnings, [&](const Warning& warning) { return warning.job.value_or(job) != job; });
  for (Warning& warning : warnings) warning.job.reset();
}

// Drops what is in the report of the first job alone.
void drop_what_is_of_the_first(Run& run) {
  run.proof = {};
  run.warm_up = Unknown{"it is known of the first job alone"};
  run.profile.reset();
  run.kernel_choices.clear();
}

// Whether they ask for the same work, whatever its length and means: what both do adds.
bool same_work(const RunConfig& a, const RunConfig& b) {
  bool same = true;
  for_each_setting([&](const Setting& setting, auto member) {
    same = same && (setting.decides != Decides::work || a.*member == b.*member);
  });
  return same;
}

}  // namespace

std::vector<const Metric*> metrics_of(std::span<const SampleUnit> units) {
  std::vector<const Metric*> metrics;
  for (const SampleUnit unit : units) {
    add_new(metrics, &throughput_metric(unit));
    if (metrics.size() > 1) continue;
    for (const Metric& metric : metrics_of_any_unit) metrics.push_back(&metric);
  }
  return metrics;
}

std::vector<const Metric*> all_metrics_of(std::span<const SampleUnit> units) {
  std::vector<const Metric*> metrics = metrics_of(units);
  for (const SampleUnit unit : units) {
    add_new(metrics, unit == SampleUnit::image ? &per_gpu_metric<SampleUnit::image>()
                                               : &per_gpu_metric<SampleUnit::sequence>());
  }
  for (const Metric& metric : metrics_on_request) metrics.push_back(&metric);
  for (const Metric& metric : metrics_of_latency) metrics.push_back(&metric);
  return metrics;
}

std::span<const Metric> latency_metrics() { return metrics_of_latency; }

bool has_latency(const Run& run) {
  return std::ranges::any_of(run.ranks,
                             [](const Rank& rank) { return rank.latency.value.has_value(); });
}

const Metric& throughput_metric(SampleUnit unit) {
  return throughput_metrics.at(static_cast<size_t>(unit));
}

const Metric& bus_bandwidth_metric() {
  static constexpr Metric metric{
      "bus_bandwidth_bytes_per_second", "B/s", "GB/s", 1e-9, true, false, bus_bandwidth};
  return metric;
}

const Metric& metric_from(const std::string& name) {
  std::string names;
  for (const Metric* metric : all_metrics_of(sample_units)) {
    if (name == metric->name) return *metric;
    names += std::string(names.empty() ? "" : ", ") + metric->name;
  }
  const auto* cost = std::ranges::find(metrics_of_cost, name, &Metric::name);
  if (cost != metrics_of_cost.end()) return *cost;
  if (name == bus_bandwidth_metric().name) return bus_bandwidth_metric();
  throw std::invalid_argument("there is no metric '" + name + "'; there are: " + names);
}

double throughput_of(const TimedWindow& window) {
  return static_cast<double>(window.samples) / window.seconds;
}

double mean_step_seconds(const TimedWindow& window) {
  return window.seconds / static_cast<double>(window.steps);
}

Maybe<double> gpus_of(const Run& run) {
  if (run.device_name.find(" MIG ") != std::string::npos) {
    return Unknown{"its MIG devices are parts of GPUs"};
  }
  std::set<std::pair<int64_t, int64_t>> gpus;
  for (const Rank& rank : run.ranks) {
    if (!rank.gpu) return Unknown{"it ran on CPUs"};
    gpus.emplace(rank.environment, *rank.gpu);
  }
  if (gpus.empty()) return Unknown{"the run has no rank"};
  return static_cast<double>(gpus.size());
}

Maybe<double> run_seconds(const Run& run) {
  Maybe<double> set_up = slowest<&Rank::set_up, &SetUp::total_seconds>(run);
  if (!set_up) return set_up;
  if (!run.window) return Unknown{run.window.reason};
  return *set_up + run.window->seconds +
         static_cast<double>(run.window->first_step) * mean_step_seconds(*run.window);
}

void set_throughput(const Maybe<double>& throughput, Run& run) {
  run.throughput = throughput;
  run.flops_per_second = run.share_of_peak = Unknown{throughput.reason};
  if (!throughput) return;
  run.flops_per_second = *throughput * run.flops_per_sample;
  run.share_of_peak = Unknown{run.peak_flops_per_second.reason};
  if (!run.peak_flops_per_second) return;
  run.share_of_peak = *run.flops_per_second / *run.peak_flops_per_second;
}

void fail_run(const std::string& why, Run& run) {
  run.status = Status::failed;
  run.failure = why;
  set_throughput(Unknown{"the run failed"}, run);
}

std::string build_text(const Tool& tool) {
  constexpr size_t shown_digits = 12;
  const std::string commit = tool.git_commit.value.value_or("of unknown commit");
  const bool dirty = tool.dirty.value.value_or(false);
  std::string text = tool.version + " " + commit + (dirty ? " with changes" : "");
  if ((dirty || !tool.git_commit) && tool.build_id) {
    text += " (build " + tool.build_id->substr(0, shown_digits) + ")";
  }
  return text + " " + tool.build_type;
}

std::string status_text(const Run& run) {
  return std::string("the run is ") + to_string(run.status) + ": " + run.failure.value_or("");
}

double samples_of_job(const RunConfig& config, double samples_of_ranks) {
  return samples_of_ranks / static_cast<double>(config.pipeline);
}

double samples_within(const RunConfig& config, std::span<const Rank> ranks, int64_t first_step,
                      const TimeSpan& time) {
  return samples_of_job(
      config, steps_within(ranks, first_step, time) * static_cast<double>(step_samples(config)));
}

bool does_unlike_work(const std::vector<RunConfig>& workloads) {
  return std::ranges::any_of(
      workloads, [&](const RunConfig& config) { return !same_work(config, workloads.front()); });
}

Run run_of_job(const Run& run, size_t job) {
  Run own = run;
  own.jobs.clear();
  own.ranks.clear();
  own.digests.clear();
  own.peak_flops_per_second = Unknown{"it is known of all jobs together alone"};
  keep_warnings_of(static_cast<int64_t>(job), own.warnings);
  if (job > 0) drop_what_is_of_the_first(own);
  if (job >= run.jobs.size()) return own;
  const ConcurrentJob& recorded = run.jobs[job];
  int64_t first = 0;
  for (size_t i = 0; i < job; ++i) first += run.jobs[i].ranks;
  for (int64_t i = first; i < std::min(first + recorded.ranks, std::ssize(run.ranks)); ++i) {
    own.ranks.push_back(run.ranks[i]);
    own.ranks.back().rank -= first;
  }
  for (DigestGroup group : run.digests) {
    for (int64_t& rank : group.ranks) rank -= first;
    std::erase_if(group.ranks, [&](int64_t rank) { return rank < 0 || rank >= recorded.ranks; });
    if (!group.ranks.empty()) own.digests.push_back(std::move(group));
  }
  own.world_size = recorded.ranks;
  own.sample = recorded.sample;
  if (recorded.flops_per_sample) own.flops_per_sample = *recorded.flops_per_sample;
  own.parameters = recorded.parameters.value_or(own.parameters);
  if (own.window) {
    TimedWindow& window = *own.window.value;
    window.first_step = recorded.first_step.value_or(window.first_step);
    window.steps = recorded.steps.value_or(window.steps);
    window.samples = std::llround(recorded.throughput * window.seconds);
  }
  if (run.status == Status::complete) set_throughput(recorded.throughput, own);
  return own;
}

}  // namespace nearmetal
