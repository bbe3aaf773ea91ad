// The value of a setting of `run`, from what a command line or a layout file says.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reports/document/settings.h"

namespace nearmetal {

/// Of an enum, the names that its option takes.
template <Named E>
std::vector<std::string> choices_of(const Setting& setting) {
  std::vector<std::string> choices;
  constexpr auto names = names_of(E{});
  for (size_t i = 0; i < names.size(); ++i) {
    if (i != setting.names.without) choices.emplace_back(names[i]);
  }
  return choices;
}

void require_choice_of(const Setting& setting, const std::string& text,
                       const std::vector<std::string>& choices);

// Each throws std::invalid_argument, which names the option, for what it does not take.
void parse_setting(const Setting& setting, const std::string& text, std::string& network);
void parse_setting(const Setting& setting, const std::string& text,
                   std::optional<std::string>& path);
void parse_setting(const Setting& setting, const std::string& text, int64_t& value);
void parse_setting(const Setting& setting, const std::string& text, double& value);
void parse_setting(const Setting& setting, const std::string& text, LossScale& value);
template <Named E>
void parse_setting(const Setting& setting, const std::string& text, E& value) {
  require_choice_of(setting, text, choices_of<E>(setting));
  value = *from_name<E>(text);
}
template <class T>
void parse_setting(const Setting& setting, const std::string& text, std::optional<T>& member) {
  if constexpr (std::is_same_v<T, int64_t>) {
    if (setting.takes_auto && text == "auto") {
      member = setting.automatic;
      return;
    }
  }
  T value{};
  parse_setting(setting, text, value);
  member = value;
}

}  // namespace nearmetal
