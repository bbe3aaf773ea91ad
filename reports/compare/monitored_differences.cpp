#include "reports/compare/monitored_differences.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/text.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

enum class Slows { when_lower, when_higher, unknown };

struct Watched {
  const char* series;
  const char* words;
  const char* unit;
  double shown_per_unit;
  double least;      // difference that says something, of the larger value, or in its unit
  bool is_relative;  // `least` is
  Slows slows;
};

constexpr std::array watched = {
    Watched{"sm_clock_hertz", "SM clock", " GHz", 1e-9, .01, true, Slows::when_lower},
    Watched{"memory_clock_hertz", "memory clock", " GHz", 1e-9, .01, true, Slows::when_lower},
    Watched{"cpu_hertz", "CPU clock", " GHz", 1e-9, .01, true, Slows::when_lower},
    Watched{"cpu_steal_share", "CPU time that the hypervisor stole", " %", 100, steal_may_be, false,
            Slows::when_higher},
    Watched{busy_with_others_series, "CPUs busy with others", "", 1, others_may_use, false,
            Slows::when_higher},
    Watched{"power_watts", "power", " W", 1, .03, true, Slows::unknown},
    Watched{"temperature_celsius", "temperature", " degrees", 1, 3, false, Slows::unknown}};

// The mean over the ranks, of each run; empty where one does not know it.
std::vector<double> values_of(std::span<const Run* const> runs, const Watched& figure) {
  std::vector<double> values;
  for (const Run* run : runs) {
    if (figure.series == std::string("cpu_hertz") && run->device != Device::cpu) return {};
    std::vector<double> of_ranks;
    for (const Rank& rank : run->ranks) {
      const Maybe<double> value = monitored(rank, figure.series);
      if (!value) return {};
      of_ranks.push_back(*value);
    }
    if (of_ranks.empty()) return {};
    values.push_back(mean(of_ranks));
  }
  return values;
}

// Whether the ranges of both lie further apart than the wider is wide.
bool are_apart(const std::vector<double>& base, const std::vector<double>& next, double least) {
  const auto [low, high] = std::ranges::minmax(base);
  const auto [new_low, new_high] = std::ranges::minmax(next);
  const double gap = std::max(low - new_high, new_low - high);
  return gap > std::max({high - low, new_high - new_low, least});
}

std::string text_of(const Watched& figure, double base, double next) {
  const auto shown = [&](double value) {
    return significant(value * figure.shown_per_unit, 3) + figure.unit;
  };
  const std::string change = figure.is_relative ? " (" + signed_percent(next / base - 1) + ")" : "";
  return std::string(figure.words) + " " + shown(next) + " instead of " + shown(base) + change;
}

}  // namespace

MonitoredDifferences monitored_differences(std::span<const Run* const> base,
                                           std::span<const Run* const> next, bool next_is_slower) {
  MonitoredDifferences found;
  for (const Watched& figure : watched) {
    const std::vector<double> of_base = values_of(base, figure), of_next = values_of(next, figure);
    if (of_base.empty() || of_next.empty()) continue;
    const double a = mean(of_base), b = mean(of_next);
    const double least = figure.is_relative ? figure.least * std::max(a, b) : figure.least;
    if (!are_apart(of_base, of_next, least)) continue;
    const Slows change = b < a ? Slows::when_lower : Slows::when_higher;
    const bool fits = figure.slows != Slows::unknown && (figure.slows == change) == next_is_slower;
    (fits ? found.causes : found.others).push_back(text_of(figure, a, b));
  }
  return found;
}

}  // namespace nearmetal
