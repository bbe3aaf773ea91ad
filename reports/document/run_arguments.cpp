#include "reports/document/run_arguments.h"

#include <array>
#include <charconv>
#include <stdexcept>

namespace nearmetal {
namespace {

// A number of steps stands in place of the time.
bool has_effect(const Setting& setting, const RunConfig& config) {
  if (setting.only_for && *setting.only_for != config.device) return false;
  return !is_time(setting) || !config.steps;
}

// None for a toggle that is off, and where nothing was chosen.
template <class T>
void append_flag(std::vector<std::string>& arguments, const Setting& setting, const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    if (value) arguments.push_back(flag_of(setting));
  } else {
    const std::optional<std::string> text = setting_text(setting, value);
    if (text) arguments.push_back(flag_of(setting) + "=" + *text);
  }
}

}  // namespace

std::string setting_text(const Setting&, const std::string& value) { return value; }
std::string setting_text(const Setting&, int64_t value) { return std::to_string(value); }

// The shortest text that reads back as the same number.
std::string setting_text(const Setting& setting, double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return std::string(text.data(), end.ptr) + (is_time(setting) ? "s" : "");
}

std::string setting_text(const Setting& setting, const LossScale& scale) {
  if (!scale.dynamic) return setting_text(setting, scale.initial);
  if (scale.initial == initial_of_dynamic) return "dynamic";
  throw std::invalid_argument("a dynamic loss scale that starts at " +
                              setting_text(setting, scale.initial) + " cannot be asked for again");
}

Workload repeated_workload(const RunConfig& config) {
  Workload workload;
  for_each_setting([&](const Setting& setting, auto member) {
    if (!setting.repeated || !has_effect(setting, config)) return;
    std::vector<std::string> flags;
    append_flag(flags, setting, config.*member);
    if (flags.empty()) return;
    workload.config.*member = config.*member;
    workload.given.emplace_back(setting.name);
  });
  return workload;
}

std::vector<std::string> run_arguments(const RunConfig& config) {
  return run_arguments(repeated_workload(config));
}

std::vector<std::string> run_arguments(const Workload& workload) {
  std::vector<std::string> arguments = {"run"};
  for (const std::string& name : workload.given) {
    visit_settings(
        [&](const Setting& setting, const auto& value) {
          if (setting.name == name) append_flag(arguments, setting, value);
        },
        workload.config);
  }
  return arguments;
}

}  // namespace nearmetal
