#include "reports/document/monitoring.h"

#include <cmath>

#include "base/text.h"

namespace nearmetal {
namespace {

constexpr double throttled_may_be = 0.01;  // of the samples, or of the periods of a quota
constexpr double clock_may_drift = 0.018;  // from the first quarter of the window to the last

constexpr MonitorReasonKind clocks(const char* code, const char* how,
                                   std::optional<MonitorVerdict> verdict) {
  return {code, how, " of the samples", FigureUnit::share, throttled_may_be, verdict};
}

// A power cap is how a GPU at its limit works, and part of what is compared.
constexpr std::array kinds = {
    MonitorReasonKind{"gpu_processes", "", " processes on the GPU at once", FigureUnit::count, 1,
                      MonitorVerdict::shared},
    MonitorReasonKind{"cpu_steal", "the hypervisor gave ", " of the CPUs' time to others (steal)",
                      FigureUnit::share, steal_may_be, MonitorVerdict::shared},
    MonitorReasonKind{"cpus_busy_with_others", "other processes kept ", " busy", FigureUnit::cpus,
                      others_may_use, MonitorVerdict::shared},
    clocks("clocks_set_limit", "clocks held at a set limit in ", {}),
    clocks("clocks_power_limit", "clocks lowered by the power limit in ", {}),
    clocks("clocks_hardware", "clocks halved or worse by the hardware (heat, power or brake) in ",
           MonitorVerdict::throttled),
    clocks("clocks_group", "clocks lowered to those of a group of GPUs in ", {}),
    clocks("clocks_heat_driver", "clocks lowered by the driver for heat in ",
           MonitorVerdict::throttled),
    clocks("clocks_heat_hardware", "clocks lowered by the hardware for heat in ",
           MonitorVerdict::throttled),
    clocks("clocks_power_brake", "clocks lowered by the power brake of the system in ",
           MonitorVerdict::throttled),
    MonitorReasonKind{"quota_held", "the control group's quota of CPUs stopped threads in ",
                      " of its periods", FigureUnit::share, throttled_may_be,
                      MonitorVerdict::throttled},
    MonitorReasonKind{"clock_changed", " changed by ",
                      " from the first quarter of the window to the last", FigureUnit::share,
                      clock_may_drift, MonitorVerdict::drifted},
    MonitorReasonKind{"link_slow",
                      "the rate of the PCIe link stayed ",
                      " below what GPU and slot can",
                      FigureUnit::share,
                      0,
                      {}},
    MonitorReasonKind{"memory_errors", "", " uncorrected memory errors", FigureUnit::count, 0, {}},
    MonitorReasonKind{"link_errors", "", " NVLink replays or recoveries", FigureUnit::count, 0, {}},
};

MonitorVerdict verdict_of(const MonitorReason& reason) {
  if (!reason.figure) return MonitorVerdict::unknown;
  const MonitorReasonKind* kind = monitor_reason_kind(reason.code);
  const bool above = std::abs(reason.figure->value) > reason.figure->limit;
  return kind != nullptr && above ? kind->verdict.value_or(MonitorVerdict::clean)
                                  : MonitorVerdict::clean;
}

}  // namespace

std::span<const MonitorReasonKind> monitor_reason_kinds() { return kinds; }

const MonitorReasonKind* monitor_reason_kind(std::string_view code) {
  return find_in(kinds, code, &MonitorReasonKind::code);
}

MonitorVerdict verdict_of(const std::vector<MonitorReason>& reasons) {
  for (const auto verdict : {MonitorVerdict::shared, MonitorVerdict::throttled,
                             MonitorVerdict::drifted, MonitorVerdict::unknown}) {
    const bool any = std::ranges::any_of(
        reasons, [&](const MonitorReason& reason) { return verdict_of(reason) == verdict; });
    if (any) return verdict;
  }
  return MonitorVerdict::clean;
}

const MonitorReason* worst_of(const std::vector<MonitorReason>& reasons) {
  const MonitorReason* worst = nullptr;
  for (const MonitorReason& reason : reasons) {
    if (!reason.figure || verdict_of(reason) == MonitorVerdict::clean) continue;
    if (worst == nullptr || is_worse(*reason.figure, *worst->figure)) worst = &reason;
  }
  return worst;
}

const MonitoredSeries* series_named(const Monitoring& monitoring, const std::string& name) {
  return find_in(monitoring.series, name, &MonitoredSeries::name);
}

}  // namespace nearmetal
