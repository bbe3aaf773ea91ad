#include "reports/document/setting.h"

#include <algorithm>
#include <string_view>

namespace nearmetal {
namespace {

constexpr std::string_view unit_of_times = "_seconds";

}  // namespace

bool is_time(const Setting& setting) {
  return std::string_view(setting.name).ends_with(unit_of_times);
}

bool holds_for_all_jobs(const Setting& setting) {
  return setting.proves || setting.decides == Decides::display;
}

std::string layout_name_of(const Setting& setting) {
  const std::string name = setting.name;
  return is_time(setting) ? name.substr(0, name.size() - unit_of_times.size()) : name;
}

std::string flag_of(const Setting& setting) {
  std::string name = layout_name_of(setting);
  std::ranges::replace(name, '_', '-');
  return "--" + name;
}

}  // namespace nearmetal
