#include "bench/cli/parse_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string_view>
#include <type_traits>

#include "models/networks/registry.h"

namespace nearmetal {
namespace {

std::string shown(double bound) { return shortest(bound, 16); }

std::string described(const Range& bounds) {
  if (std::isinf(bounds.minimum) && std::isinf(bounds.maximum)) return "";
  return std::string(" ") + (bounds.above_minimum ? "above " : "from ") + shown(bounds.minimum) +
         (bounds.above_minimum ? " up to " : " to ") + shown(bounds.maximum);
}

// "2" is most likely meant as 2%.
std::string percent_hint(const std::string& flag, const std::string& text, const Range& bounds) {
  try {
    parse_share(flag, text + "%", bounds);
    return "; did you mean " + text + "%?";
  } catch (const std::invalid_argument&) {
    return "";
  }
}

Range range_of(const Setting& setting) {
  return {setting.range.minimum, setting.most, setting.range.above_minimum};
}

}  // namespace

template <class Number>
Number parse_number(const std::string& flag, const std::string& text, const Range& bounds) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const auto number = static_cast<double>(value);
  const bool parsed = error == std::errc() && stop == end && std::isfinite(number);
  const bool below = bounds.above_minimum ? number <= bounds.minimum : number < bounds.minimum;
  if (parsed && !below && number <= bounds.maximum) return value;
  const char* kind = std::is_integral_v<Number> ? " must be an integer" : " must be a number";
  throw std::invalid_argument(flag + kind + described(bounds) + ", not '" + text + "'");
}
template int64_t parse_number<int64_t>(const std::string&, const std::string&, const Range&);
template double parse_number<double>(const std::string&, const std::string&, const Range&);

double parse_share(const std::string& flag, const std::string& text, const Range& bounds) {
  const bool percent = !text.empty() && text.back() == '%';
  try {
    if (!percent) return parse_number<double>(flag, text, bounds);
    const Range in_percent{100 * bounds.minimum, 100 * bounds.maximum, bounds.above_minimum};
    return parse_number<double>(flag, text.substr(0, text.size() - 1), in_percent) / 100;
  } catch (const std::invalid_argument&) {
    throw std::invalid_argument(flag + " must be a share" + described(bounds) +
                                ", or with % in percent, not '" + text + "'" +
                                (percent ? "" : percent_hint(flag, text, bounds)));
  }
}

double parse_amount(const std::string& flag, const std::string& text) {
  const std::map<char, double> units = {{'k', 1e3}, {'M', 1e6}, {'G', 1e9}, {'B', 1e9}};
  const auto unit = text.empty() ? units.end() : units.find(text.back());
  if (unit == units.end()) return parse_number<double>(flag, text, {0, 1e12, true});
  const std::string number = text.substr(0, text.size() - 1);
  return unit->second * parse_number<double>(flag, number, {0, 1e12, true});
}

double parse_duration(const std::string& flag, const std::string& text) {
  constexpr double longest_seconds = 1e6;
  double unit_seconds = 1;
  std::string number = text;
  if (!text.empty() && std::string("smh").find(text.back()) != std::string::npos) {
    unit_seconds = text.back() == 's' ? 1 : text.back() == 'm' ? 60 : 3600;
    number.pop_back();
  }
  try {
    const Range bounds{0, longest_seconds / unit_seconds, true};
    return unit_seconds * parse_number<double>(flag, number, bounds);
  } catch (const std::invalid_argument&) {
    throw std::invalid_argument(flag + " must be a time such as 30, 30s or 2m, above 0 and up to " +
                                shown(longest_seconds) + " s, not '" + text + "'");
  }
}

void require_choice(const std::string& flag, const std::string& text,
                    const std::vector<std::string>& choices) {
  if (std::ranges::find(choices, text) != choices.end()) return;
  throw std::invalid_argument(flag + " does not take '" + text + "'" + did_you_mean(text, choices) +
                              " (" + joined(choices) + ")");
}

std::string checked_path(const std::string& flag, const std::string& text) {
  // A text with a leading dash is an argument only behind --.
  const bool is_argument = !flag.starts_with("-");
  if (!text.empty() && (is_argument || text.front() != '-' || text == "-")) return text;
  throw std::invalid_argument(flag + " needs the path of a file, not '" + text +
                              "'; write ./NAME for a name that starts with '-'");
}

bool is_path(const std::string& word) {
  return word.find('/') != word.npos || std::filesystem::path(word).has_extension();
}

std::string file_of_that_name(const std::string& word) {
  std::error_code ignored;
  if (!std::filesystem::exists(word, ignored)) return "";
  return "; there is a file of that name: write ./" + word + " to use it";
}

void parse_setting(const Setting& setting, const std::string& text, std::string& network) {
  require_choice(flag_of(setting), text, network_names());
  network = text;
}

void parse_setting(const Setting& setting, const std::string& text,
                   std::optional<std::string>& path) {
  // The ranks of a job read files themselves, and have no standard input.
  if (text == "-" && std::string_view(setting.name) != "output") {
    throw std::invalid_argument(flag_of(setting) + " needs the path of a file, not standard input");
  }
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
