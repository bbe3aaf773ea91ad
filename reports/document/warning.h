// What a reader of the numbers should know: warnings, what the monitor saw of a rank's GPU and CPUs
// while its window was timed, the figures by which both are judged, and all of it in words.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/value.h"

namespace nearmetal {

struct UnsupportedArm;  // reports/document/types.h

enum class FigureUnit { share, count, cpus, seconds, times };
constexpr auto names_of(FigureUnit) {
  return std::array{"share", "count", "cpus", "seconds", "times"};
}

struct Figure {
  double value = 0;
  double limit = 0;  // the largest that is acceptable, whatever its sign
  FigureUnit unit = FigureUnit::share;

  bool operator==(const Figure&) const = default;
};

/// Whether `a` is further above its limit than `b` above its own, each in times of it; above a
/// limit of 0 anything is infinitely far.
inline bool is_worse(const Figure& a, const Figure& b) {
  const auto excess = [](const Figure& figure) {
    const double size = std::abs(figure.value);
    return std::pair(size > 0 ? size / figure.limit : 0, size);
  };
  return excess(a) > excess(b);
}

struct Warning {
  std::string code;                // stable, for scripts: lower case with underscores
  std::string text;                // for people, without who gave it
  std::optional<Figure> figure{};  // how bad it is; none: it has no degrees
  // Who gave it, of several; none of these: all.
  std::optional<int64_t> job{};       // index into the run's jobs
  std::optional<int64_t> rank{};      // of the job
  std::optional<int64_t> stage{};     // of the rank, where there are several
  std::optional<std::string> host{};  // of the rank

  bool operator==(const Warning&) const = default;
};

/// ok: looked at and fine. note: not looked at, or good to know. warning: costs speed or trust.
/// blocker: runs of the kind that it names will not start, or not be what they seem.
enum class Urgency { ok, note, warning, blocker };
constexpr auto names_of(Urgency) { return std::array{"ok", "note", "warning", "blocker"}; }

struct Finding {
  Urgency severity = Urgency::ok;
  std::string code;  // stable, for scripts: lower case with underscores
  std::string seen;
  std::string why;  // it matters for the number; empty where all is well
  std::string fix;
};

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

/// "39.1 %", "3", "1.99 CPUs", "2.50 s", "12.0 times".
std::string figure_text(const Figure& figure);

/// The same of the least and the most of figures of one unit: "1.74 to 1.99 CPUs".
std::string figures_text(const Figure& least, const Figure& most);

/// "rank 1, stage 0 (vm0)"
std::string rank_text(int64_t rank, std::optional<int64_t> stage, const std::string& host);

/// The job and the rank that gave the warning: "job 2", "rank 1, stage 0 (vm0)"; empty: all.
std::vector<std::string> givers_of(const Warning& warning);

/// The text after those who gave the warning: "job 2: rank 1 (vm0): step times were not steady".
std::string attributed_text(const Warning& warning);

/// Sets the text, who gave it, and of a monitor's verdict the figure, from what attributed_text()
/// made: reports before 1.14 have all these in the text alone.
void set_attributed_text(const std::string& attributed, Warning& warning);

/// The warning of a verdict that is not clean, with the figure of its worst reason.
Warning warning_of(const Monitoring& monitoring);

/// "other processes kept 1.50 CPUs busy"
std::string text_of(const MonitorReason& reason);

/// A sentence for each reason.
std::vector<std::string> texts_of(const std::vector<MonitorReason>& reasons);

/// The reason that a sentence of text_of() was made of: reports before 1.14 have sentences alone.
/// An unknown sentence becomes the `why` of a reason without a figure.
MonitorReason reason_from(const std::string& sentence);

/// "4 jobs, MIG: unsupported: MIG is off"
std::string unsupported_text(const UnsupportedArm& arm);

}  // namespace nearmetal
