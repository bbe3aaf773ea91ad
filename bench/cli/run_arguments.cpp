#include "bench/cli/run_arguments.h"

#include <string_view>

#include "bench/cli/setting_value.h"

namespace nearmetal {
namespace {

// A number of steps stands in place of the time.
bool has_effect(const Setting& setting, const RunConfig& config) {
  if (setting.only_for && *setting.only_for != config.device) return false;
  return !is_time(setting) || !config.steps;
}

}  // namespace

std::vector<std::string> run_arguments(const RunConfig& config) {
  std::vector<std::string> arguments = {"run"};
  visit_settings(
      [&](const Setting& setting, const auto& value) {
        if (!setting.repeated || !has_effect(setting, config)) return;
        if constexpr (std::is_same_v<decltype(value), const bool&>) {
          if (value) arguments.push_back(flag_of(setting));
        } else {
          const std::optional<std::string> text = setting_text(setting, value);
          if (text) arguments.push_back(flag_of(setting) + "=" + *text);
        }
      },
      config);
  return arguments;
}

}  // namespace nearmetal
