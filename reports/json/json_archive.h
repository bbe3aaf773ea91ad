// How structs are written as JSON; reports/json/json_reader.h reads them with the same list of
// fields.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "reports/document/allowed.h"
#include "reports/document/types.h"

// A struct takes part by a function template found by argument-dependent look-up:
//   template <class Archive> void fields(Archive& field, In<Archive, TimedWindow> window) {
//     field.type("window", "What was timed");
//     field("steps", window.steps, at_least(1));
//     field("seconds", window.seconds, above(0), "Time of the slowest rank");
//     field.added("clock", window.clock);  // later than 1.0
//   }
// Numbers are checked against a Range, texts by a Form, enums by their Names; of lists, each
// element. The name of the type and the descriptions are those in the JSON Schema, which
// reports/json/schema_writer.h makes of the same list.
namespace nearmetal::json {

using Json = nlohmann::ordered_json;
constexpr auto replace_bad_utf8 = Json::error_handler_t::replace;

/// JSON readers at large (JavaScript, jq) hold integers in doubles: exact up to here.
inline constexpr int64_t largest_integer = (int64_t{1} << 53) - 1;

/// The form of a text: one of some names, or as a pattern says.
struct Form {
  std::array<const char*, 8> names{};  // null after the last; none: any text
  // ^...$ of characters and [sets], each of them once, {n} times, {n,m} times or + (at least once),
  // but never followed by a character that it may be itself.
  const char* pattern = nullptr;
  const char* description = "";  // "must be ..."; of names: the names
  // Where a pattern of this kind does not say all: decides instead of it.
  bool (*matches)(const std::string& text) = nullptr;

  std::vector<std::string> all_names() const;
  bool accepts(const std::string& text) const;
  std::string must_be() const;
};
inline constexpr Form any_text{};
template <class... Texts>
constexpr Form one_of(Texts... texts) {
  return {.names = {texts...}};
}
inline constexpr Form hash{.pattern = "^[0-9a-f]{64}$", .description = "64 hexadecimal digits"};
inline constexpr Form commit{.pattern = "^[0-9a-f]{40,64}$", .description = "a commit id"};
/// In the calendar, but for leap years.
bool is_time_stamp(const std::string& text);
inline constexpr Form time_stamp{
    .pattern =
        "^[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|"
        "30)|02-(0[1-9]|[12][0-9]))T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$",
    .description = "a time such as 2026-01-31T12:00:00Z",
    .matches = is_time_stamp};
inline constexpr Form code{.pattern = "^[a-z_]+$",
                           .description = "a code of lower-case letters and underscores"};
inline constexpr Form readable_version{.pattern = "^1\\.[0-9]+$",
                                       .description = "1.x, the versions that this program reads"};

template <class T>
inline constexpr bool is_number = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;
template <class T>
inline constexpr bool is_maybe = false;
template <class T>
inline constexpr bool is_maybe<Maybe<T>> = true;
template <class T>
inline constexpr bool holds_values = false;
template <class T>
inline constexpr bool holds_values<std::optional<T>> = true;
template <class T>
inline constexpr bool holds_values<std::vector<T>> = true;
template <class T>
constexpr auto no_check() {
  if constexpr (is_maybe<T>) {
    return no_check<decltype(T::value)>();
  } else if constexpr (holds_values<T>) {
    return no_check<typename T::value_type>();
  } else {
    return std::conditional_t<is_number<T>, Range, std::conditional_t<Named<T>, Names, Form>>{};
  }
}
/// The check that a field of type T takes.
template <class T>
using CheckOf = decltype(no_check<T>());

template <class Archive, class T>
using In = std::conditional_t<Archive::writes, const T&, T&>;

class Writer {
 public:
  static constexpr bool writes = true;

  /// The object so far.
  Json take();

  void type(const char*, const char* = "") {}
  /// Checks and descriptions are for those who read.
  template <class T, class... More>
  void operator()(const char* key, const T& value, const More&...) {
    put(key, json_of(value, unit_));
  }
  template <class T, class... More>
  void operator()(const char* key, const Maybe<T>& value, const More&...) {
    value ? put_known(key, json_of(*value, unit_)) : put_unknown(key, value.reason);
  }
  template <class T, class... More>
  void added(const char* key, const T& value, const More&...) {
    (*this)(key, value);
  }
  /// A field that is left out where there is no value.
  template <class T, class... More>
  void optional(const char* key, const std::optional<T>& value, const More&...) {
    if (value) (*this)(key, *value);
  }
  /// The unit that the object and those in it count. It is written where it is not that of the
  /// object around; at first that is images, which were all there was.
  void unit(const char* key, SampleUnit value);
  /// The keys of counts and rates in that unit.
  const UnitWords& words() const { return words_of(unit_); }
  /// Each field as {value, origin}; null where there are no origins.
  template <class T>
  void settings(const char* key, const T& values, const Origins& origins, const char*) {
    if (origins.empty()) return put(key, {});
    put_settings(key, json_of(values), origins);
  }

  template <class T>
  static Json json_of(const T& value, SampleUnit unit = SampleUnit::image) {
    if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::string>) {
      return scalar(value);
    } else if constexpr (std::is_floating_point_v<T>) {
      return scalar(static_cast<double>(value));
    } else if constexpr (std::is_integral_v<T>) {
      return scalar(static_cast<std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>(value));
    } else if constexpr (std::is_enum_v<T>) {
      return scalar(std::string(to_string(value)));
    } else {
      Writer writer;
      writer.unit_ = unit;
      fields(writer, value);
      return writer.take();
    }
  }
  template <class T>
  static Json json_of(const std::optional<T>& value, SampleUnit unit = SampleUnit::image) {
    return value ? json_of(*value, unit) : Json();
  }
  template <class T>
  static Json json_of(const std::vector<T>& values, SampleUnit unit = SampleUnit::image) {
    std::vector<Json> array;
    array.reserve(values.size());
    for (const T& value : values) array.push_back(json_of(value, unit));
    return list(std::move(array));
  }
  static Json json_of(const std::map<std::string, std::string>& values,
                      SampleUnit unit = SampleUnit::image);

 private:
  // Code that is the same for all fields is not compiled anew for each of them.
  void put(const char* key, Json value);
  void put_known(const char* key, Json value);
  void put_unknown(const char* key, const std::string& reason);
  void put_settings(const char* key, const Json& plain, const Origins& origins);
  static Json scalar(bool value);
  static Json scalar(int64_t value);
  static Json scalar(uint64_t value);
  static Json scalar(double value);
  static Json scalar(const std::string& value);
  static Json list(std::vector<Json> values);

  Json object_ = Json::object();
  SampleUnit unit_ = SampleUnit::image;
  Json unknown_;  // null in an object without a field that may be unknown
};

}  // namespace nearmetal::json
