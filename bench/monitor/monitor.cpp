#include "bench/monitor/monitor.h"

#include <algorithm>
#include <chrono>

#include "bench/monitor/monitor_sources.h"
#include "models/errors.h"

namespace nearmetal {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t most_samples = 8192;     // in memory
constexpr double slow_every_seconds = 1;  // counters of errors and processes take many calls

double now_seconds() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

}  // namespace

struct Monitor::Sources {
  explicit Sources(const MonitorOptions& options) : cpu(options.root, options.ranks_on_host) {}

  CpuSource cpu;
  std::unique_ptr<GpuSource> gpu;
  double last_slow = 0;
  bool opened = false;
  int64_t first_memory_errors = 0, first_link_errors = 0;
  Maybe<double> first_joules;
};

Monitor::Monitor(const MonitorOptions& options, const TrainerProgress& progress)
    : options_(options), progress_(progress) {
  options_.sharers.own_device = !options.mig_uuid.empty();
  if (options.hz <= 0) return;
  sources_ = std::make_unique<Sources>(options);
  table_.names = CpuSource::names();
  if (!options.pci_id.empty()) {
    try {
      sources_->gpu =
          std::make_unique<GpuSource>(options.nvml_library, options.pci_id, options.mig_uuid);
      for (const std::string& name : GpuSource::names()) table_.names.push_back(name);
    } catch (const NotSupported& error) {
      for (const std::string& name : GpuSource::names()) not_monitored_[name] = error.what();
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

void Monitor::loop() {
  const auto interval =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(1 / options_.hz));
  auto next = Clock::now();
  std::unique_lock lock(mutex_);
  while (!over_) {
    if (in_window()) sample(now_seconds());
    next += interval;
    wake_.wait_until(lock, next, [this] { return over_; });
  }
}

void Monitor::sample(double seconds) {
  if (!sources_->opened) {  // rates count from here
    sources_->opened = true;
    std::vector<double> unused(CpuSource::names().size());
    sources_->cpu.read(unused.data());
    if (GpuSource* gpu = sources_->gpu.get()) {
      sources_->first_memory_errors = gpu->memory_errors();
      sources_->first_link_errors = gpu->link_errors();
      sources_->first_joules = gpu->joules();
    }
    return;
  }
  if (table_.seconds.size() == most_samples) halve();
  table_.seconds.push_back(seconds);
  const size_t row = table_.values.size();
  table_.values.resize(row + table_.names.size());
  sources_->cpu.read(&table_.values[row]);
  GpuSource* gpu = sources_->gpu.get();
  if (gpu != nullptr) gpu->read(&table_.values[row + CpuSource::names().size()]);
  table_.throttle_bits.push_back(gpu != nullptr ? gpu->throttle_bits() : 0);
  if (gpu == nullptr) return;
  const Maybe<double> joules = gpu->joules();  // each time, since any sample may be the last
  table_.joules = joules && sources_->first_joules
                      ? Maybe<double>(*joules - *sources_->first_joules)
                      : Maybe<double>(Unknown{joules.reason});
  if (seconds - sources_->last_slow < slow_every_seconds) return;
  sources_->last_slow = seconds;
  table_.most_processes = std::max(table_.most_processes, gpu->processes());
  table_.memory_errors = gpu->memory_errors() - sources_->first_memory_errors;
  table_.link_errors = gpu->link_errors() - sources_->first_link_errors;
}

// Every second row goes; the rest of the window is sampled as often as before.
void Monitor::halve() {
  const size_t width = table_.names.size();
  const size_t rows = table_.seconds.size() / 2;
  for (size_t i = 0; i < rows; ++i) {
    table_.seconds[i] = table_.seconds[2 * i];
    table_.throttle_bits[i] = table_.throttle_bits[2 * i] | table_.throttle_bits[2 * i + 1];
    std::copy_n(&table_.values[2 * i * width], width, &table_.values[i * width]);
  }
  table_.seconds.resize(rows);
  table_.throttle_bits.resize(rows);
  table_.values.resize(rows * width);
}

std::optional<Monitoring> Monitor::stop(const Maybe<double>& samples_per_second) {
  if (!thread_.joinable()) return std::nullopt;
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  wake_.notify_all();
  thread_.join();
  if (table_.seconds.empty()) return std::nullopt;
  Monitoring result = judge_samples(table_, options_.sharers);
  result.not_monitored.insert(not_monitored_.begin(), not_monitored_.end());
  result.samples_per_joule = Unknown{result.joules.reason};
  const MonitoredSeries* power = series_named(result, "power_watts");
  if (power != nullptr && power->mean > 0 && samples_per_second) {
    result.samples_per_joule = *samples_per_second / power->mean;
  }
  return result;
}

}  // namespace nearmetal
