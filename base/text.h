// Numbers and words as tables show them, and lists of words and others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/value.h"

namespace nearmetal {

/// Takes text in memory. Throws where that runs out, which other streams keep to themselves, so
/// that nothing half written gets into a file.
struct TextStream : std::ostringstream {
  TextStream() { exceptions(badbit); }
  TextStream(TextStream&& other) : std::ostringstream(std::move(other)) {}
};

/// The value with this many significant digits, but at most 6 decimals: "7950", "0.0132",
/// "7.500e+37".
std::string significant(double value, int digits = 4);

/// The same of a value times `scale`, or "-" where it is not known.
std::string significant_or_dash(const Maybe<double>& value, double scale = 1, int digits = 4);

std::string fixed(double value, int decimals);

/// The value with at most so many significant digits, and no zeros behind them.
std::string shortest(double value, int digits);
/// The value with as many digits as it takes to be read back as the same number.
std::string exact(double value);

/// "1413 [1406, 1420]", to two digits of the interval's half width, or of the value where that is
/// less: "0.41 [0.01, 27.30]".
std::string with_interval(double value, const Interval& interval);

/// The same, or the value alone where there is no interval.
std::string estimate_text(const Estimate& estimate);
/// The value alone, in the digits in which estimate_text() tells it.
std::string value_text(const Estimate& estimate);

/// A share in percent, signed: "-1.64 %".
std::string signed_percent(double share, int decimals = 2);
/// "-1.64 % [-2.17, -1.10]"
std::string signed_percent(double share, const Interval& interval);
/// The two apart: {"-1.64 %", "[-2.17, -1.10]"}.
std::pair<std::string, std::string> signed_percents(double share, const Interval& interval);

/// "93.1 %"
inline std::string percent(double share, int digits = 3) {
  return significant(100 * share, digits) + " %";
}
/// "2 %", "2.5 %": no more digits than the share has.
inline std::string plain_percent(double share) { return shortest(100 * share, 6) + " %"; }

/// "45 s", "80 min" or "2 h 5 min".
std::string duration_text(double seconds);

/// "1 run", "2 runs".
inline std::string counted(int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string lower_case(std::string text);  // of ASCII

std::string joined(const std::vector<std::string>& words, const std::string& separator = ", ");

/// The first so many, and how many others there are: "a, b and 3 more".
std::string joined_first(size_t most, std::vector<std::string> words,
                         const std::string& separator = ", ",
                         const std::string& before_rest = " and ");

/// What is between the separators: one part more than there are of these, even of an empty text.
std::vector<std::string> split(const std::string& text, const std::string& separator);

/// What is between blanks and ends of lines.
std::vector<std::string> words_in(const std::string& text);

/// What a function, or a pointer to a member, makes of each value.
template <class Values, class Function>
auto transformed(const Values& values, const Function& function) {
  using Result = std::invoke_result_t<const Function&, decltype(*std::begin(values))>;
  std::vector<std::decay_t<Result>> results;
  for (const auto& value : values) results.push_back(std::invoke(function, value));
  return results;
}

/// The first value with that key; null where there is none.
template <class Values, class Key, class Projection = std::identity>
auto* find_in(Values& values, const Key& key, const Projection& projection = {}) {
  const auto found = std::ranges::find(values, key, projection);
  return found == std::ranges::end(values) ? nullptr : &*found;
}

/// Adds a value that is not among them.
template <class T>
void add_new(std::vector<T>& values, const std::type_identity_t<T>& value) {
  if (find_in(values, value) == nullptr) values.push_back(value);
}

/// Adds all of others.
template <class T>
void append(std::vector<T>& values, std::type_identity_t<std::vector<T>> others) {
  std::ranges::move(others, std::back_inserter(values));
}

/// The value beside a key, made where there is none: a map in the order in which keys came.
template <class Key, class Value>
Value& value_beside(const std::type_identity_t<Key>& key,
                    std::vector<std::pair<Key, Value>>& pairs) {
  auto* const known = find_in(pairs, key, &std::pair<Key, Value>::first);
  return known != nullptr ? known->second : pairs.emplace_back(key, Value{}).second;
}

/// `text` with each `what` in it replaced.
std::string replaced(std::string text, const std::string& what, const std::string& with);

/// With a backslash before each of these characters.
std::string escaped(const std::string& text, std::string_view special);

/// A time in seconds since 1970, by UTC in the form that strftime() takes.
std::string utc_text(const char* form, std::time_t seconds);

/// Values of a fact in the unit that its name ends with, as people read them: "80530636800" of
/// "gpus/0/memory_bytes" is "80.53 GB". Others stay as they are.
std::string readable_fact(const std::string& name, const std::string& values);

/// A list for a cell of a table: what goes beyond 160 bytes is cut after a word, with "...".
std::string shortened(const std::string& list);

/// The known word that is meant by another name, such as cuda by gpu, or that is nearest to `word`
/// by edit distance (Levenshtein, with swapped neighbours as one edit); empty where none is near:
/// at most one edit for each three letters, at least 1.
std::string nearest_word(const std::string& word, const std::vector<std::string>& known);

/// "; did you mean 'x'?", or empty.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& known);

}  // namespace nearmetal
