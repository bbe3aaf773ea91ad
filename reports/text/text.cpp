#include "reports/text/text.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iomanip>
#include <sstream>

namespace nearmetal {
namespace {

int magnitude_of(double value) {
  return value == 0 ? 0 : static_cast<int>(std::floor(std::log10(std::abs(value))));
}

// Decimals that show two significant digits of an error of this size: 0 to 6.
int decimals_for(double error) { return error > 0 ? std::clamp(1 - magnitude_of(error), 0, 6) : 6; }

}  // namespace

std::string significant(double value, int digits) {
  constexpr int longest_magnitude = 9;
  const int magnitude = magnitude_of(value);
  if (magnitude < longest_magnitude) return fixed(value, std::clamp(digits - 1 - magnitude, 0, 6));
  std::ostringstream text;
  text << std::scientific << std::setprecision(digits - 1) << value;
  return text.str();
}

std::string fixed(double value, int decimals) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(decimals) << value;
  return text.str();
}

std::string shortest(double value, int digits) {
  std::ostringstream text;
  text << std::setprecision(digits) << value;
  return text.str();
}

std::string with_interval(double value, const Interval& interval) {
  const int of_value = value == 0 ? 0 : decimals_for(std::abs(value));
  const int decimals = std::max(of_value, decimals_for((interval.upper - interval.lower) / 2));
  return fixed(value, decimals) + " [" + fixed(interval.lower, decimals) + ", " +
         fixed(interval.upper, decimals) + "]";
}

std::string signed_percent(double share, int decimals) {
  const std::string text = fixed(100 * share, decimals);
  return (share > 0 ? "+" : "") + text + " %";
}

std::string signed_percent(double share, const Interval& interval) {
  constexpr int of_value = 2;
  const int decimals = std::clamp(decimals_for(50 * (interval.upper - interval.lower)), 1, 4);
  const auto bound = [&](double value) {
    return (value > 0 ? "+" : "") + fixed(100 * value, decimals);
  };
  return signed_percent(share, std::max(of_value, decimals)) + " [" + bound(interval.lower) + ", " +
         bound(interval.upper) + "]";
}

std::string percent(double share, int digits) { return significant(100 * share, digits) + " %"; }

std::string plain_percent(double share) { return shortest(100 * share, 6) + " %"; }

std::string counted(int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string joined(const std::vector<std::string>& words, const std::string& separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + with.size())) {
    text.replace(at, what.size(), with);
  }
  return text;
}

std::string shortened(const std::string& list) {
  constexpr size_t longest = 160;
  if (list.size() <= longest) return list;
  const size_t end_of_word = list.rfind(", ", longest);
  return list.substr(0, end_of_word == list.npos ? longest : end_of_word) + ", ...";
}

}  // namespace nearmetal
