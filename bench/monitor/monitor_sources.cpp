#include "bench/monitor/monitor_sources.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <limits>

#include "base/errors.h"
#include "bench/cli/process.h"
#include "bench/environment/system_files.h"
#include "models/probe.h"
#include "reports/document/environment.h"
#include "reports/document/warning.h"

namespace nearmetal {
namespace {

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

// Numbers of nvml.h.
enum : unsigned { uncorrected = 1, since_load = 0 };
enum : unsigned { link_replays = 0, link_recoveries = 1, link_kinds = 2 };
constexpr unsigned pcie_sent = 0, pcie_received = 1;
// nvmlProcessInfo_t
struct ProcessInfo {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};

double cpu_seconds_of_process() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// /proc/PID/stat of what belongs to this process: the same program, started by the same launcher or
// by the same sweep, with a launcher between or without: other ranks, jobs at once and neighbours.
// A launcher of one rank may be a shell, whose other runs are strangers.
std::vector<std::filesystem::path> siblings(const std::filesystem::path& root, int64_t ranks) {
  const auto stat_of = [&](int pid) { return root / "proc" / std::to_string(pid) / "stat"; };
  std::vector<std::filesystem::path> found;
  const auto own = process_stat("/proc/self/stat");
  if (!own) return found;
  const auto launcher = process_stat(stat_of(own->parent));
  const auto above = launcher ? process_stat(stat_of(launcher->parent)) : std::nullopt;
  const bool in_sweep = above && above->name == own->name;
  for (const std::string& pid : names_in(root / "proc")) {
    if (pid.find_first_not_of("0123456789") != pid.npos || pid == std::to_string(getpid()))
      continue;
    const auto process = process_stat(root / "proc" / pid / "stat");
    if (!process || process->name != own->name) continue;
    const auto parent = process_stat(stat_of(process->parent));
    const bool of_sweep = in_sweep && (process->parent == launcher->parent ||
                                       (parent && parent->parent == launcher->parent));
    if ((ranks > 1 && process->parent == own->parent) || of_sweep) {
      found.push_back(root / "proc" / pid / "stat");
    }
  }
  return found;
}

// A few of the CPUs that this process may use: they show the trend, and reading a clock disturbs
// its CPU.
std::set<int64_t> watched_cpus() {
  constexpr size_t most = 8;
  const std::vector<int64_t> usable = usable_cpus();
  if (usable.empty()) return {0};
  std::set<int64_t> watched;
  const size_t count = std::min(most, usable.size());
  for (size_t i = 0; i < count; ++i) watched.insert(usable[i * usable.size() / count]);
  return watched;
}

// The mean clock of these CPUs: by the governor, else as /proc/cpuinfo shows it.
double cpu_hertz(const std::filesystem::path& root, const std::set<int64_t>& cpus) {
  double sum = 0, count = 0;
  for (const int64_t cpu : cpus) {
    const std::string name = "cpu" + std::to_string(cpu);
    std::ifstream governor(root / "sys/devices/system/cpu" / name / "cpufreq/scaling_cur_freq");
    if (double kilohertz = 0; governor >> kilohertz) sum += 1e3 * kilohertz, ++count;
  }
  if (count > 0) return sum / count;
  std::ifstream file(root / "proc/cpuinfo");
  bool is_watched = false;
  for (std::string line; std::getline(file, line);) {
    const double value = std::strtod(&line[std::min(line.size(), line.find(':') + 1)], nullptr);
    if (line.starts_with("processor")) is_watched = cpus.contains(static_cast<int64_t>(value));
    if (line.starts_with("cpu MHz") && is_watched) sum += 1e6 * value, ++count;
  }
  return count > 0 ? sum / count : unknown;
}

}  // namespace

double pcie_rate(double generation, double width) {
  const auto last = static_cast<double>(pcie_gigatransfers.size());
  const double known = std::clamp(generation, 1., last);
  return pcie_gigatransfers.at(static_cast<size_t>(known) - 1) * width;
}

GpuSource::GpuSource(const std::string& library, const std::string& pci_id,
                     const std::optional<std::string>& mig_uuid)
    : nvml_(library) {
  const Maybe<NvmlDevice> device = nvml_.device_at(pci_id);
  if (!device) throw NotSupported(device.reason);
  device_ = part_ = *device;
  if (!mig_uuid) return;
  const auto part = nvml_.ask<NvmlDevice>("nvmlDeviceGetHandleByUUID", mig_uuid->c_str());
  if (!part) throw NotSupported("the MIG device is not found: " + part.reason);
  part_ = *part;
}

std::vector<std::string> GpuSource::names() {
  return {"sm_clock_hertz",
          "memory_clock_hertz",
          "power_watts",
          "temperature_celsius",
          "gpu_busy_share",
          "memory_busy_share",
          "memory_used_bytes",
          "pcie_sent_bytes_per_second",
          "pcie_received_bytes_per_second",
          link_generation_series,
          link_width_series};
}

void GpuSource::read(double* values) const {
  const auto number = [&](const char* function, double unit, auto... which) {
    return scaled(nvml_.ask<unsigned>(function, device_, which...), unit).value.value_or(unknown);
  };
  *values++ = number("nvmlDeviceGetClockInfo", 1e6, clock_sm);
  *values++ = number("nvmlDeviceGetClockInfo", 1e6, clock_memory);
  *values++ = number("nvmlDeviceGetPowerUsage", 1e-3);
  *values++ = number("nvmlDeviceGetTemperature", 1, 0u);
  struct Utilisation {
    unsigned gpu, memory;
  };
  const auto busy = nvml_.ask<Utilisation>("nvmlDeviceGetUtilizationRates", device_);
  *values++ = busy ? 0.01 * busy->gpu : unknown;
  *values++ = busy ? 0.01 * busy->memory : unknown;
  struct Memory {
    unsigned long long total, free, used;
  };
  const auto memory = nvml_.ask<Memory>("nvmlDeviceGetMemoryInfo", part_);
  *values++ = memory ? static_cast<double>(memory->used) : unknown;
  *values++ = number("nvmlDeviceGetPcieThroughput", 1024, pcie_sent);
  *values++ = number("nvmlDeviceGetPcieThroughput", 1024, pcie_received);
  *values++ = number("nvmlDeviceGetCurrPcieLinkGeneration", 1);
  *values++ = number("nvmlDeviceGetCurrPcieLinkWidth", 1);
}

Maybe<unsigned long long> GpuSource::throttle_bits() const {
  auto bits = nvml_.ask<unsigned long long>("nvmlDeviceGetCurrentClocksEventReasons", device_);
  if (bits) return bits;  // before driver 535 it had another name
  return nvml_.ask<unsigned long long>("nvmlDeviceGetCurrentClocksThrottleReasons", device_);
}

Maybe<int64_t> GpuSource::processes() const {
  std::array<ProcessInfo, 64> infos{};
  unsigned count = infos.size();
  const std::string why =
      nvml_.call("nvmlDeviceGetComputeRunningProcesses_v3", part_, &count, infos.data());
  if (!why.empty() && count <= infos.size()) return Unknown{why};  // else there are more
  return int64_t{count};
}

Maybe<int64_t> GpuSource::memory_errors() const {
  return scaled<int64_t>(nvml_.ask<unsigned long long>("nvmlDeviceGetTotalEccErrors", device_,
                                                       +uncorrected, +since_load),
                         1);
}

Maybe<int64_t> GpuSource::link_errors() const {
  Maybe<int64_t> sum = Unknown{"no NVLink has counters"};
  for (unsigned link = 0; link < most_nvlinks; ++link) {
    for (unsigned kind = 0; kind < link_kinds; ++kind) {
      const auto count =
          nvml_.ask<unsigned long long>("nvmlDeviceGetNvLinkErrorCounter", device_, link, kind);
      if (count) sum = sum.value.value_or(0) + static_cast<int64_t>(*count);
    }
  }
  return sum;
}

Maybe<double> GpuSource::largest_link_rate() const {
  const auto generation = nvml_.ask<unsigned>("nvmlDeviceGetMaxPcieLinkGeneration", device_);
  const auto width = nvml_.ask<unsigned>("nvmlDeviceGetMaxPcieLinkWidth", device_);
  if (!generation || !width) return Unknown{(generation ? width : generation).reason};
  return pcie_rate(*generation, *width);
}

Maybe<double> GpuSource::joules() const {
  return scaled(nvml_.ask<unsigned long long>("nvmlDeviceGetTotalEnergyConsumption", device_),
                1e-3);
}

CpuSource::CpuSource(const std::filesystem::path& root, int64_t ranks)
    : root_(root),
      watched_(watched_cpus()),
      siblings_(siblings(root, ranks)),
      last_(times()),
      rates_{unknown, unknown, unknown} {}

std::vector<std::string> CpuSource::names() {
  return {"cpu_busy_share", "cpu_steal_share", busy_with_others_series, "cpu_hertz"};
}

CpuSource::Times CpuSource::times() const {
  Times found;
  std::ifstream file(root_ / "proc/stat");
  std::string name;
  // proc(5): user nice system idle iowait irq softirq steal, in ticks
  std::array<double, 8> ticks{};
  file >> name;
  for (double& tick : ticks) file >> tick;
  if (!file || name != "cpu") {
    found.total = unknown;
    return found;
  }
  const double second = 1. / static_cast<double>(sysconf(_SC_CLK_TCK));
  for (const double tick : ticks) found.total += second * tick;
  found.steal = second * ticks[7];
  found.busy = found.total - second * (ticks[3] + ticks[4]) - found.steal;
  found.own = cpu_seconds_of_process();
  for (const auto& stat : siblings_) {
    const auto process = process_stat(stat);
    if (process) found.own += second * process->cpu_ticks;  // else it has ended
  }
  found.wall = steady_seconds();
  return found;
}

void CpuSource::update_rates(const Times& now) {
  const double total = now.total - last_.total;
  // The kernel counts in ticks and the process in nanoseconds: single values may fall below 0.
  const double others = (now.busy - last_.busy) - (now.own - last_.own);
  rates_ = {(now.busy - last_.busy) / total, (now.steal - last_.steal) / total,
            others / (now.wall - last_.wall)};
  last_ = now;
}

void CpuSource::read(double* values) {
  const Times now = times();
  const bool ticked = now.total > last_.total;
  if (ticked || !std::isfinite(now.total)) update_rates(now);
  values = std::ranges::copy(rates_, values).out;
  *values = cpu_hertz(root_, watched_);
}

}  // namespace nearmetal
