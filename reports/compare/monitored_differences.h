// What the monitors of two sides saw that differs between them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "reports/document/types.h"

namespace nearmetal {

/// Figures by which the sides differ more than the runs within them do, each in words: "CPU clock
/// 2.60 GHz instead of 3.50 GHz (-25.7 %)".
struct MonitoredDifferences {
  std::vector<std::string> causes;  // that slow the side which is slower
  std::vector<std::string> others;
};

/// Of complete runs. A figure that a run lacks is left out, as is the clock of CPUs beside a GPU,
/// which wait.
MonitoredDifferences monitored_differences(std::span<const Run* const> base,
                                           std::span<const Run* const> next, bool next_is_slower);

}  // namespace nearmetal
