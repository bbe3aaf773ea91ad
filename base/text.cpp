#include "base/text.h"

#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <ios>
#include <limits>

namespace nearmetal {
namespace {

int magnitude_of(double value) {
  if (value == 0) return 0;
  if (!std::isfinite(value)) return std::numeric_limits<double>::max_exponent10;
  return static_cast<int>(std::floor(std::log10(std::abs(value))));
}

// Decimals that show two significant digits of an error of this size: 0 to 6.
int decimals_for(double error) { return error > 0 ? std::clamp(1 - magnitude_of(error), 0, 6) : 6; }

// Of a value beside its interval.
int decimals_beside(double value, const Interval& interval) {
  const int of_value = value == 0 ? 0 : decimals_for(std::abs(value));
  return std::max(of_value, decimals_for((interval.upper - interval.lower) / 2));
}

std::string formatted(double value, int precision, std::ios_base::fmtflags style) {
  TextStream text;
  text.setf(style, std::ios_base::floatfield);
  text.precision(precision);
  text << value;
  return text.str();
}

std::string scaled(double value, const std::string& unit) {
  for (const auto& [factor, prefix] :
       {std::pair(1e12, "T"), std::pair(1e9, "G"), std::pair(1e6, "M"), std::pair(1e3, "k")}) {
    if (value >= factor) return significant(value / factor) + " " + prefix + unit;
  }
  return shortest(value, 4) + " " + unit;
}

// What other programs, and other commands of this one, call it.
constexpr std::pair<const char*, const char*> other_names[] = {
    {"gpu", "cuda"},         {"bs", "batch"},           {"batch-size", "batch"},
    {"lr", "learning-rate"}, {"dtype", "precision"},    {"amp", "precision"},
    {"out", "output"},       {"runs", "repeats"},       {"repeats", "runs"},
    {"runs", "repetitions"}, {"iterations", "steps"},   {"iters", "steps"},
    {"cpu", "device"},       {"cuda", "device"},        {"seconds", "duration"},
    {"duration", "seconds"}, {"html", "format"},        {"format", "html"},
    {"arch", "model"},       {"thruput", "throughput"}, {"repeats", "repetitions"},
};

// Optimal string alignment distance by dynamic programming: distance[i][j] is that of the first i
// letters of `a` and the first j of `b`.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> distance(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        distance[i][j] = i + j;
        continue;
      }
      const size_t replaced = distance[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      distance[i][j] = std::min({replaced, distance[i - 1][j] + 1, distance[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        distance[i][j] = std::min(distance[i][j], distance[i - 2][j - 2] + 1);
      }
    }
  }
  return distance[a.size()][b.size()];
}

}  // namespace

std::string significant(double value, int digits) {
  constexpr int longest_magnitude = 9;
  const int magnitude = magnitude_of(value);
  if (magnitude < longest_magnitude) return fixed(value, std::clamp(digits - 1 - magnitude, 0, 6));
  return formatted(value, digits - 1, std::ios_base::scientific);
}

std::string significant_or_dash(const Maybe<double>& value, double scale, int digits) {
  return value ? significant(scale * *value, digits) : "-";
}

std::string fixed(double value, int decimals) {
  constexpr double longest = 1e15;  // whose digits a double has
  if (std::abs(value) >= longest) return formatted(value, 3, std::ios_base::scientific);
  return formatted(value, decimals, std::ios_base::fixed);
}

std::string shortest(double value, int digits) { return formatted(value, digits, {}); }

std::string exact(double value) {
  constexpr int always_enough = std::numeric_limits<double>::max_digits10;
  int digits = std::numeric_limits<double>::digits10;
  std::string text = shortest(value, digits);
  while (digits < always_enough && std::strtod(text.c_str(), nullptr) != value) {
    text = shortest(value, ++digits);
  }
  return text;
}

std::string with_interval(double value, const Interval& interval) {
  const int decimals = decimals_beside(value, interval);
  return fixed(value, decimals) + " [" + fixed(interval.lower, decimals) + ", " +
         fixed(interval.upper, decimals) + "]";
}

std::string estimate_text(const Estimate& estimate) {
  return estimate.interval ? with_interval(estimate.value, *estimate.interval)
                           : significant(estimate.value);
}

std::string value_text(const Estimate& estimate) {
  return estimate.interval
             ? fixed(estimate.value, decimals_beside(estimate.value, *estimate.interval))
             : significant(estimate.value);
}

std::string signed_percent(double share, int decimals) {
  const std::string text = fixed(100 * share, decimals);
  return (share > 0 ? "+" : "") + text + " %";
}

std::string signed_percent(double share, const Interval& interval) {
  const auto [percent, bounds] = signed_percents(share, interval);
  return percent + " " + bounds;
}

std::pair<std::string, std::string> signed_percents(double share, const Interval& interval) {
  constexpr int of_value = 2;
  const int decimals = std::clamp(decimals_for(50 * (interval.upper - interval.lower)), 1, 4);
  const auto bound = [&](double value) {
    return (value > 0 ? "+" : "") + fixed(100 * value, decimals);
  };
  return {signed_percent(share, std::max(of_value, decimals)),
          "[" + bound(interval.lower) + ", " + bound(interval.upper) + "]"};
}

std::string duration_text(double seconds) {
  constexpr int64_t minute = 60, hour = 60;
  const auto whole = std::llround(seconds);
  if (whole < 2 * minute) return std::to_string(whole) + " s";
  const int64_t minutes = std::llround(seconds / minute);
  if (minutes < 2 * hour) return std::to_string(minutes) + " min";
  return std::to_string(minutes / hour) + " h " + std::to_string(minutes % hour) + " min";
}

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string joined_first(size_t most, std::vector<std::string> words, const std::string& separator,
                         const std::string& before_rest) {
  const size_t rest = words.size() - std::min(words.size(), most);
  words.resize(words.size() - rest);
  return joined(words, separator) + (rest > 0 ? before_rest + std::to_string(rest) + " more" : "");
}

std::string joined(const std::vector<std::string>& words, const std::string& separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0, end = 0; end != text.npos; begin = end + separator.size()) {
    end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
  }
  return parts;
}

std::vector<std::string> words_in(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + with.size())) {
    text.replace(at, what.size(), with);
  }
  return text;
}

std::string escaped(const std::string& text, std::string_view special) {
  std::string result;
  for (const char c : text) {
    if (special.find(c) != special.npos) result += '\\';
    result += c;
  }
  return result;
}

std::string utc_text(const char* form, std::time_t seconds) {
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[64];
  return {text, std::strftime(text, sizeof text, form, &parts)};
}

std::string readable_fact(const std::string& name, const std::string& values) {
  constexpr std::array<std::pair<const char*, const char*>, 3> units = {
      {{"_bytes", "B"}, {"_bytes_per_second", "B/s"}, {"_hertz", "Hz"}}};
  const auto unit =
      std::ranges::find_if(units, [&](const auto& known) { return name.ends_with(known.first); });
  if (unit == units.end()) return values;
  return joined(transformed(split(values, ", "), [&](const std::string& value) {
    char* end_of_number = nullptr;
    const double number = std::strtod(value.c_str(), &end_of_number);
    const bool is_number = !value.empty() && *end_of_number == 0;
    return is_number ? scaled(number, unit->second) : value;
  }));
}

std::string shortened(const std::string& list) {
  constexpr size_t longest = 160;
  if (list.size() <= longest) return list;
  const size_t end_of_word = list.rfind(", ", longest);
  return list.substr(0, end_of_word == list.npos ? longest : end_of_word) + ", ...";
}

std::string nearest_word(const std::string& word, const std::vector<std::string>& known) {
  const std::string dashes = word.starts_with("--") ? "--" : "";
  const std::string plain = replaced(lower_case(word.substr(dashes.size())), "_", "-");
  for (const auto& [other_name, meant] : other_names) {
    if (plain == other_name && find_in(known, dashes + meant) != nullptr) return dashes + meant;
  }
  if (find_in(known, dashes + plain) != nullptr) return dashes + plain;
  constexpr size_t longest_word = 64;  // a longer one is no typing mistake
  if (word.size() > longest_word) return "";
  std::string nearest;
  size_t allowed = std::max<size_t>(1, word.size() / 3);
  for (const std::string& candidate : known) {
    const size_t distance = edit_distance(word, candidate);
    if (distance > allowed || (distance == allowed && !nearest.empty())) continue;
    nearest = candidate;
    allowed = distance;
  }
  return nearest;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
  const std::string nearest = nearest_word(word, known);
  return nearest.empty() ? "" : "; did you mean '" + nearest + "'?";
}

}  // namespace nearmetal
