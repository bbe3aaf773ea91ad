#include "bench/monitor/monitor.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "base/errors.h"
#include "bench/environment/rdma.h"
#include "bench/monitor/monitor_sources.h"
#include "models/control_groups.h"
#include "models/probe.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

constexpr size_t most_samples = 8192;      // in memory
constexpr double opening_seconds = 0.002;  // by which the window may be seen to open late
constexpr double slow_every_seconds = 1;   // counters of errors and processes take many calls

constexpr size_t most_values = 300;  // of a series in the report
constexpr size_t fewest_samples_for_drift = 8;

constexpr struct {
  unsigned long long bit;  // of nvml.h's nvmlClocksEventReason...
  const char* code;
} clock_reasons[] = {{0x2, "clocks_set_limit"},    {0x4, "clocks_power_limit"},
                     {0x8, "clocks_hardware"},     {0x10, "clocks_group"},
                     {0x20, "clocks_heat_driver"}, {0x40, "clocks_heat_hardware"},
                     {0x80, "clocks_power_brake"}};

std::vector<double> column_of(const MonitorTable& table, size_t column) {
  std::vector<double> values;
  for (size_t at = column; at < table.values.size(); at += table.names.size()) {
    values.push_back(table.values[at]);
  }
  return values;
}

// Neighbours averaged, in groups of the same size but the last.
std::vector<double> compacted(const std::vector<double>& values, size_t group) {
  std::vector<double> result;
  for (size_t at = 0; at < values.size(); at += group) {
    result.push_back(mean({&values[at], std::min(group, values.size() - at)}));
  }
  return result;
}

// What each row stands for: the time since the one before, as rates count from there.
std::vector<double> durations_of(const MonitorTable& table) {
  std::vector<double> durations(table.seconds.size(), 1);
  for (size_t i = 1; i < durations.size(); ++i) {
    durations[i] = table.seconds[i] - table.seconds[i - 1];
  }
  if (durations.size() > 1) durations[0] = durations[1];
  return durations;
}

void add_series(const MonitorTable& table, size_t group, Monitoring& result) {
  const std::vector<double> durations = durations_of(table);
  const double whole = std::accumulate(durations.begin(), durations.end(), 0.0);
  for (size_t column = 0; column < table.names.size(); ++column) {
    const std::vector<double> values = column_of(table, column);
    const std::string& name = table.names[column];
    if (std::ranges::any_of(values, [](double v) { return !std::isfinite(v); })) {
      result.not_monitored[name] = "not known here at every sample";
      continue;
    }
    const auto [low, high] = std::ranges::minmax_element(values);
    double above = 0;  // the first value, so that what does not change stays exact
    for (size_t row = 0; row < values.size(); ++row) {
      above += durations[row] / whole * (values[row] - values.front());
    }
    result.series.push_back({name, *low, values.front() + above, *high, compacted(values, group)});
  }
}

MonitorReason reason_of(const char* code, double value) {
  const MonitorReasonKind& kind = *monitor_reason_kind(code);
  return {.code = code, .figure = Figure{value, kind.limit, kind.unit}};
}

void add_if_above(const MonitorReason& reason, Monitoring& result) {
  if (std::abs(reason.figure->value) > reason.figure->limit) result.reasons.push_back(reason);
}

// A counter's, from its first reading.
template <class T>
Maybe<T> difference(const Maybe<T>& now, const Maybe<T>& first) {
  if (!now || !first) return Unknown{now ? first.reason : now.reason};
  return *now - *first;
}

void add_count(const char* code, const Maybe<int64_t>& count, Monitoring& result) {
  if (count) add_if_above(reason_of(code, static_cast<double>(*count)), result);
}

void add_sharing(const MonitorTable& table, const MonitorOptions& options, Monitoring& result) {
  const int64_t meant = options.mig_uuid ? 1 : options.sharing_jobs + (options.through_mps ? 1 : 0);
  if (table.most_processes) {
    MonitorReason processes =
        reason_of("gpu_processes", static_cast<double>(*table.most_processes));
    processes.figure->limit = static_cast<double>(meant);
    add_if_above(processes, result);
  }
  const MonitoredSeries* steal = series_named(result, "cpu_steal_share");
  if (steal != nullptr) add_if_above(reason_of("cpu_steal", steal->mean), result);
  const MonitoredSeries* others = series_named(result, busy_with_others_series);
  if (options.sharing_jobs == 1 && others != nullptr) {
    MonitorReason busy = reason_of("cpus_busy_with_others", others->mean);
    busy.figure->limit = others_may_use_of(options.logical_cpus);
    add_if_above(busy, result);
  }
}

void add_throttling(const MonitorTable& table, Monitoring& result) {
  for (const auto& reason : clock_reasons) {
    const auto count = std::ranges::count_if(table.throttle_bits,
                                             [&](auto bits) { return (bits & reason.bit) != 0; });
    if (count == 0) continue;
    const auto samples = static_cast<double>(table.throttle_bits.size());
    result.reasons.push_back(reason_of(reason.code, static_cast<double>(count) / samples));
  }
  if (table.held_share) add_if_above(reason_of("quota_held", *table.held_share), result);
}

// The clock of CPUs that wait follows the governor, and not the work.
void add_drift(const MonitorTable& table, const MonitorOptions& options, Monitoring& result) {
  if (table.seconds.size() < fewest_samples_for_drift) return;
  for (const std::string name : {"sm_clock_hertz", "memory_clock_hertz", "cpu_hertz"}) {
    if (series_named(result, name) == nullptr) continue;
    if (name == "cpu_hertz" && !options.on_all_cpus) continue;
    const auto column = std::ranges::find(table.names, name);
    const std::vector<double> values = column_of(table, column - table.names.begin());
    const size_t quarter = values.size() / 4;
    const double first = mean({values.data(), quarter});
    const double last = mean({values.data() + values.size() - quarter, quarter});
    if (first <= 0) continue;
    MonitorReason changed = reason_of("clock_changed", last / first - 1);
    changed.subject = name;
    add_if_above(changed, result);
  }
}

// Idle GPUs lower the link, so that the best look of the window counts.
void add_slow_link(const MonitorTable& table, Monitoring& result) {
  const MonitoredSeries* generation = series_named(result, link_generation_series);
  const MonitoredSeries* width = series_named(result, link_width_series);
  if (generation == nullptr || width == nullptr || !table.largest_link_rate) return;
  const double rate = pcie_rate(generation->maximum, width->maximum);
  const double missing = std::max(0., 1 - rate / *table.largest_link_rate);
  add_if_above(reason_of("link_slow", missing), result);
}

// The figures that must be known of the whole window before it is called clean.
void add_what_is_not_known(const MonitorOptions& options, Monitoring& result) {
  std::vector<std::string> judged = {"cpu_steal_share", "sm_clock_hertz", "clock_event_reasons",
                                     "gpu_processes"};
  if (options.sharing_jobs == 1) judged.push_back(busy_with_others_series);
  for (const std::string& name : judged) {
    const auto unseen = result.not_monitored.find(name);
    if (unseen == result.not_monitored.end()) continue;
    result.reasons.push_back({.code = unknown_reason, .subject = name, .why = unseen->second});
  }
}

}  // namespace

struct Monitor::Sources {
  explicit Sources(const MonitorOptions& options) : cpu(options.root, options.ranks_on_host) {}

  CpuSource cpu;
  std::unique_ptr<GpuSource> gpu;
  double last_slow = 0;
  bool opened = false;
  bool closed = false;
  Maybe<int64_t> first_memory_errors, first_link_errors;
  Maybe<double> first_joules;
  std::vector<GroupThrottling> first_throttling;  // by group
  std::vector<RdmaTraffic> first_rdma;
};

Monitor::Monitor(const MonitorOptions& options, const TrainerProgress& progress)
    : options_(options), progress_(progress) {
  if (options.hz <= 0) return;
  sources_ = std::make_unique<Sources>(options);
  table_.interval_seconds = 1 / options.hz;
  table_.names = CpuSource::names();
  if (options.pci_id) {
    try {
      sources_->gpu =
          std::make_unique<GpuSource>(options.nvml_library, *options.pci_id, options.mig_uuid);
      for (const std::string& name : GpuSource::names()) table_.names.push_back(name);
      table_.largest_link_rate = sources_->gpu->largest_link_rate();
    } catch (const NotSupported& error) {
      for (const std::string& name : GpuSource::names()) table_.not_monitored[name] = error.what();
      table_.joules = Unknown{error.what()};
    }
  }
  table_.seconds.reserve(most_samples);
  table_.throttle_bits.reserve(most_samples);
  table_.values.reserve(most_samples * table_.names.size());
  thread_ = std::thread([this] { loop(); });
}

Monitor::~Monitor() { stop(Unknown{"stopped"}); }

bool Monitor::in_window() const {
  const int64_t first = progress_.window_first_step.load(std::memory_order_relaxed);
  if (first < 0) return false;
  const int64_t end = first + progress_.window_steps.load(std::memory_order_relaxed);
  return progress_.steps_done.load(std::memory_order_relaxed) < end;
}

// A whole interval after each sample: were they due at fixed times, a stall would let those that it
// held up follow at once, with no tick of the kernel between them to know a rate by.
void Monitor::loop() {
  std::unique_lock lock(mutex_);
  while (!over_) {
    if (in_window()) {
      sample(steady_seconds());
    } else {
      read_totals();
    }
    // Counters of totals must be read as soon as the window opens.
    const double wait = sources_->opened ? table_.interval_seconds
                                         : std::min(table_.interval_seconds, opening_seconds);
    wake_.wait_for(lock, std::chrono::duration<double>(wait), [this] { return over_; });
  }
}

void Monitor::sample(double seconds) {
  if (!sources_->opened) {  // rates count from here
    sources_->opened = true;
    GpuSource* gpu = sources_->gpu.get();
    if (gpu != nullptr) sources_->first_joules = gpu->joules();  // first, as it counts on meanwhile
    sources_->first_rdma = rdma_counters(options_.root);
    sources_->first_throttling = group_throttling(options_.root);
    std::vector<double> unused(CpuSource::names().size());
    sources_->cpu.read(unused.data());
    if (gpu != nullptr) {
      sources_->first_memory_errors = gpu->memory_errors();
      sources_->first_link_errors = gpu->link_errors();
    }
    return;
  }
  if (table_.seconds.size() == most_samples) halve(table_);
  table_.seconds.push_back(seconds);
  const size_t row = table_.values.size();
  table_.values.resize(row + table_.names.size());
  sources_->cpu.read(&table_.values[row]);
  GpuSource* gpu = sources_->gpu.get();
  if (gpu != nullptr) gpu->read(&table_.values[row + CpuSource::names().size()]);
  const Maybe<unsigned long long> bits = gpu ? gpu->throttle_bits() : Maybe<unsigned long long>(0);
  if (!bits) table_.not_monitored["clock_event_reasons"] = bits.reason;
  table_.throttle_bits.push_back(bits.value.value_or(0));
  if (gpu == nullptr || seconds - sources_->last_slow < slow_every_seconds) return;
  sources_->last_slow = seconds;
  const Maybe<int64_t> processes = gpu->processes();
  if (processes) {
    table_.most_processes = std::max(table_.most_processes.value.value_or(0), *processes);
  } else {
    table_.not_monitored["gpu_processes"] = processes.reason;
  }
  table_.memory_errors = difference(gpu->memory_errors(), sources_->first_memory_errors);
  table_.link_errors = difference(gpu->link_errors(), sources_->first_link_errors);
}

// Once, as soon as the window is over: after its last sample it may go on for a while.
void Monitor::read_totals() {
  if (!sources_->opened || sources_->closed) return;
  sources_->closed = true;
  if (sources_->gpu != nullptr) {
    table_.joules = difference(sources_->gpu->joules(), sources_->first_joules);
  }
  const std::vector<GroupThrottling> throttling = group_throttling(options_.root);
  const std::vector<GroupThrottling>& first = sources_->first_throttling;
  for (size_t i = 0; i < std::min(first.size(), throttling.size()); ++i) {
    const auto periods = static_cast<double>(throttling[i].periods - first[i].periods);
    const auto throttled = static_cast<double>(throttling[i].throttled - first[i].throttled);
    if (periods > 0)
      table_.held_share = std::max(table_.held_share.value_or(0), throttled / periods);
  }
  table_.rdma_traffic = traffic_since(sources_->first_rdma, rdma_counters(options_.root));
}

std::optional<Monitoring> Monitor::stop(const Maybe<double>& samples) {
  if (!thread_.joinable()) return std::nullopt;
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  wake_.notify_all();
  thread_.join();
  read_totals();
  if (table_.seconds.empty()) return std::nullopt;
  Monitoring result = judge_samples(table_, options_);
  result.samples_per_joule = Unknown{result.joules.reason};
  if (result.joules && samples) {
    result.samples_per_joule = *result.joules > 0 ? Maybe(*samples / *result.joules)
                                                  : Unknown{"the counter of energy stood still"};
  }
  return result;
}

void halve(MonitorTable& table) {
  const size_t width = table.names.size();
  const size_t rows = table.seconds.size() / 2;
  const std::vector<double> durations = durations_of(table);
  for (size_t i = 0; i < rows; ++i) {
    const double share = durations[2 * i + 1] / (durations[2 * i] + durations[2 * i + 1]);
    table.seconds[i] = table.seconds[2 * i + 1];
    table.throttle_bits[i] = table.throttle_bits[2 * i];
    const double* first = &table.values[2 * i * width];
    for (size_t column = 0; column < width; ++column) {
      table.values[i * width + column] = std::lerp(first[column], first[column + width], share);
    }
  }
  table.seconds.resize(rows);
  table.throttle_bits.resize(rows);
  table.values.resize(rows * width);
  table.interval_seconds *= 2;
}

Monitoring judge_samples(const MonitorTable& table, const MonitorOptions& options) {
  Monitoring result;
  const size_t rows = table.seconds.size();
  const size_t group = (rows + most_values - 1) / most_values;
  result.samples = static_cast<int64_t>(rows);
  const double span = rows > 1 ? table.seconds.back() - table.seconds.front() : 0;
  result.interval_seconds =
      span > 0 ? span / static_cast<double>(rows - 1) * static_cast<double>(group) : 1;
  result.joules = table.joules;
  result.rdma_traffic = table.rdma_traffic;
  result.not_monitored = table.not_monitored;
  add_series(table, std::max<size_t>(group, 1), result);
  add_sharing(table, options, result);
  add_throttling(table, result);
  add_drift(table, options, result);
  add_slow_link(table, result);
  add_what_is_not_known(options, result);
  add_count("memory_errors", table.memory_errors, result);
  add_count("link_errors", table.link_errors, result);
  result.verdict = verdict_of(result.reasons);
  return result;
}

}  // namespace nearmetal
