// The values of options, and of settings in layout files, from text. Errors are
// std::invalid_argument with one line for the user.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/names.h"
#include "base/text.h"
#include "reports/document/settings.h"

namespace nearmetal {

/// What an option sets, whether or not the member that holds it is optional.
template <class T>
using Held = typename decltype(std::optional(std::declval<T>()))::value_type;

/// Decimal, the whole text, within the bounds. `flag` is for the message. For int64_t and double.
template <class Number>
Number parse_number(const std::string& flag, const std::string& text, const Range& bounds);

/// A share: 0.02, or 2%. A number of 1 or more without % is refused, as it might mean either.
double parse_share(const std::string& flag, const std::string& text, const Range& bounds);

/// A price or a count above 0: 4.20, 1.2k, 115M, 1G or 1B.
double parse_amount(const std::string& flag, const std::string& text);

/// Seconds: 30, 30s, 2m, 1.5h.
double parse_duration(const std::string& flag, const std::string& text);

void require_choice(const std::string& flag, const std::string& text,
                    const std::vector<std::string>& choices);

template <Named E>
std::vector<std::string> all_names() {
  constexpr auto names = names_of(E{});
  return {names.begin(), names.end()};
}

/// The value of this name.
template <Named E>
E parse_choice(const std::string& flag, const std::string& text) {
  require_choice(flag, text, all_names<E>());
  return *from_name<E>(text);
}

/// Refuses what looks like the option behind `flag`, and not like its value; "-" stands for a
/// standard stream.
std::string checked_path(const std::string& flag, const std::string& text);

/// Whether a word that may also be a name is the path of a file: by a '/' or a suffix, whatever
/// lies in the current folder.
bool is_path(const std::string& word);

/// How to write a word that is none where a file has that name; empty where there is no such file.
std::string file_of_that_name(const std::string& word);

/// The names that the option of an enum takes.
template <Named E>
std::vector<std::string> choices_of(const Setting& setting) {
  std::vector<std::string> choices = all_names<E>();
  if (setting.names.without < choices.size()) {
    choices.erase(choices.begin() + static_cast<std::ptrdiff_t>(setting.names.without));
  }
  return choices;
}

// Each throws std::invalid_argument, which names the option, for what it does not take.
void parse_setting(const Setting& setting, const std::string& text, std::string& network);
void parse_setting(const Setting& setting, const std::string& text,
                   std::optional<std::string>& path);
void parse_setting(const Setting& setting, const std::string& text, int64_t& value);
void parse_setting(const Setting& setting, const std::string& text, double& value);
void parse_setting(const Setting& setting, const std::string& text, LossScale& value);
template <Named E>
void parse_setting(const Setting& setting, const std::string& text, E& value) {
  require_choice(flag_of(setting), text, choices_of<E>(setting));
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
