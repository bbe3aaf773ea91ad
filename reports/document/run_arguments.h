// Settings as words of a command line.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reports/document/settings.h"

namespace nearmetal {

/// The initial value of a dynamic loss scale.
inline constexpr double initial_of_dynamic = 65536;

// The text that a command line and a layout file write for this value. Throws std::invalid_argument
// where there is none.
std::string setting_text(const Setting& setting, const std::string& value);
std::string setting_text(const Setting& setting, int64_t value);
std::string setting_text(const Setting& setting, double value);
std::string setting_text(const Setting& setting, const LossScale& value);
template <Named E>
std::string setting_text(const Setting&, E value) {
  return to_string(value);
}
/// None where nothing was chosen.
template <class T>
std::optional<std::string> setting_text(const Setting& setting, const std::optional<T>& member) {
  if constexpr (std::is_same_v<T, int64_t>) {
    if (setting.takes_auto && member == setting.automatic) return "auto";
  }
  if (!member) return std::nullopt;
  return setting_text(setting, *member);
}

/// The workload to be asked for to do the work of `config` again: every setting that decides what
/// is computed and proven, and none of output, display or plan cache, as paths of another machine
/// have no meaning here.
Workload repeated_workload(const RunConfig& config);

/// "run" and a flag for each setting of repeated_workload(). Throws std::invalid_argument for what
/// no command line asks for.
std::vector<std::string> run_arguments(const RunConfig& config);

/// "run" and a flag for each setting that was asked for, in that order.
std::vector<std::string> run_arguments(const Workload& workload);

}  // namespace nearmetal
