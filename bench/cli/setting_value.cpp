#include "bench/cli/setting_value.h"

#include <array>
#include <charconv>
#include <stdexcept>

#include "bench/cli/parse_value.h"
#include "models/networks/registry.h"

namespace nearmetal {
namespace {

constexpr double initial_of_dynamic = 65536;

Bounds bounds_of(const Setting& setting) {
  return {setting.range.minimum, setting.most, setting.range.above_minimum};
}

}  // namespace

void require_choice_of(const Setting& setting, const std::string& text,
                       const std::vector<std::string>& choices) {
  require_choice(flag_of(setting), text, choices);
}

void parse_setting(const Setting& setting, const std::string& text, std::string& network) {
  require_choice(flag_of(setting), text, network_names());
  network = text;
}

void parse_setting(const Setting& setting, const std::string& text,
                   std::optional<std::string>& path) {
  path = checked_path(flag_of(setting), text);
}

void parse_setting(const Setting& setting, const std::string& text, int64_t& value) {
  value = parse_number<int64_t>(flag_of(setting), text, bounds_of(setting));
}

void parse_setting(const Setting& setting, const std::string& text, double& value) {
  value = is_time(setting) ? parse_duration(flag_of(setting), text)
                           : parse_number<double>(flag_of(setting), text, bounds_of(setting));
}

void parse_setting(const Setting& setting, const std::string& text, LossScale& value) {
  constexpr Bounds bounds{.minimum = 0, .maximum = 1e12, .above_minimum = true};
  value = text == "dynamic"
              ? LossScale{initial_of_dynamic, true}
              : LossScale{parse_number<double>(flag_of(setting), text, bounds), false};
}

std::string setting_text(const Setting&, const std::string& value) { return value; }
std::string setting_text(const Setting&, int64_t value) { return std::to_string(value); }

// The shortest text that reads back as the same number.
std::string setting_text(const Setting&, double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end.ptr};
}

std::string setting_text(const Setting& setting, const LossScale& scale) {
  if (!scale.dynamic) return setting_text(setting, scale.initial);
  if (scale.initial == initial_of_dynamic) return "dynamic";
  throw std::invalid_argument("a dynamic loss scale that starts at " +
                              setting_text(setting, scale.initial) + " cannot be asked for again");
}

}  // namespace nearmetal
