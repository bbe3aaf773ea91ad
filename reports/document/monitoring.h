// What was seen of a rank's GPU and CPUs while its window was timed.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/value.h"
#include "reports/document/warning.h"

namespace nearmetal {

/// The series of the CPUs that processes other than those of the sweep keep busy.
inline constexpr const char* busy_with_others_series = "cpus_busy_with_others";
inline constexpr double others_may_use = 0.5;  // CPUs, before a run on few counts as shared
/// The same on a machine of so many: 1 % of them, below what two runs of its own differ by.
constexpr double others_may_use_of(int64_t cpus) {
  return std::max(others_may_use, 0.01 * static_cast<double>(cpus));
}
inline constexpr double steal_may_be = 0.01;  // of the time of all CPUs

/// The series of the PCIe link of the GPU.
inline constexpr const char* link_generation_series = "link_generation";
inline constexpr const char* link_width_series = "link_width";

struct MonitoredSeries {
  std::string name;
  double minimum = 0;
  double mean = 0;  // over the time
  double maximum = 0;
  std::vector<double> values;  // neighbours averaged where there were many

  bool operator==(const MonitoredSeries&) const = default;
};

enum class MonitorVerdict { clean, throttled, drifted, shared, unknown };
constexpr auto names_of(MonitorVerdict) {
  return std::array{"clean", "throttled", "drifted", "shared", "unknown"};
}

inline constexpr const char* unknown_reason = "unknown";  // the code of what could not be seen

/// Something that the monitor saw.
struct MonitorReason {
  std::string code;                      // of a MonitorReasonKind, or unknown_reason
  std::optional<Figure> figure{};        // none: it is not known
  std::optional<std::string> subject{};  // the series that it is about, where the code says none
  std::optional<std::string> why{};      // it is not known

  bool operator==(const MonitorReason&) const = default;
};

/// What may be seen.
struct MonitorReasonKind {
  const char* code;
  const char* before;  // of its sentence, which is the subject, this, the figure,
  const char* behind;  // and this
  FigureUnit unit;
  double limit;
  std::optional<MonitorVerdict> verdict;  // on a window above the limit; none: it is only told
};

std::span<const MonitorReasonKind> monitor_reason_kinds();

/// Null where there is none.
const MonitorReasonKind* monitor_reason_kind(std::string_view code);

/// By the reasons that are above their limits, or not known.
MonitorVerdict verdict_of(const std::vector<MonitorReason>& reasons);

/// The reason that is furthest above its limit, of those that make the verdict; null: none.
const MonitorReason* worst_of(const std::vector<MonitorReason>& reasons);

/// The traffic of a port while a window was timed, of all processes.
struct RdmaTraffic {
  std::string rdma_device;
  int64_t port = 1;
  Maybe<int64_t> sent_bytes;
  Maybe<int64_t> received_bytes;
  Maybe<int64_t> errors;  // of the link and of packets: lost, repeated or out of order

  bool operator==(const RdmaTraffic&) const = default;
};

struct Monitoring {
  double interval_seconds = 0;  // between values of the series
  int64_t samples = 0;
  MonitorVerdict verdict = MonitorVerdict::clean;
  std::vector<MonitorReason> reasons;  // what led to it, and what else a reader should know
  std::vector<MonitoredSeries> series;
  std::map<std::string, std::string> not_monitored;  // name to reason
  Maybe<double> joules;                              // of the GPU, in the window
  Maybe<double> samples_per_joule;
  std::vector<RdmaTraffic> rdma_traffic{};

  bool operator==(const Monitoring&) const = default;
};

/// Null where it was not monitored.
const MonitoredSeries* series_named(const Monitoring& monitoring, const std::string& name);

}  // namespace nearmetal
