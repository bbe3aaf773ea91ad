#include "bench/cli/setting_value.h"

#include "bench/cli/parse_value.h"
#include "models/networks/registry.h"
#include "reports/document/run_arguments.h"

namespace nearmetal {
namespace {

Range range_of(const Setting& setting) {
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
  value = parse_number<int64_t>(flag_of(setting), text, range_of(setting));
}

void parse_setting(const Setting& setting, const std::string& text, double& value) {
  value = is_time(setting) ? parse_duration(flag_of(setting), text)
                           : parse_number<double>(flag_of(setting), text, range_of(setting));
}

void parse_setting(const Setting& setting, const std::string& text, LossScale& value) {
  constexpr Range bounds{.minimum = 0, .maximum = 1e12, .above_minimum = true};
  value = text == "dynamic"
              ? LossScale{initial_of_dynamic, true}
              : LossScale{parse_number<double>(flag_of(setting), text, bounds), false};
}

}  // namespace nearmetal
