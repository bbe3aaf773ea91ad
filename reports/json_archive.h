// How structs are written as JSON; reports/json_reader.h reads them with the same list of fields.
#pragma once

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "reports/types.h"

// A struct takes part by a function template found by argument-dependent look-up:
//   template <class Archive> void fields(Archive& field, In<Archive, Tool> tool) {
//     field("version", tool.version);
//     field("steps", window.steps, at_least(1));
//     field.added("update", run.update);  // later than 1.0
//   }
// Numbers are checked against a Range, texts by a Form; of lists, each element.
namespace nearmetal::json {

using Json = nlohmann::ordered_json;
constexpr auto replace_bad_utf8 = Json::error_handler_t::replace;

/// JSON readers at large (JavaScript, jq) hold integers in doubles: exact up to here.
inline constexpr int64_t largest_integer = (int64_t{1} << 53) - 1;

struct Range {
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool above_minimum = false;
};
constexpr Range at_least(double minimum) { return {.minimum = minimum}; }
constexpr Range above(double minimum) { return {.minimum = minimum, .above_minimum = true}; }
constexpr Range within(double minimum, double maximum) { return {minimum, maximum}; }
inline constexpr Range any_number{};

/// What a text must look like.
struct Form {
  bool (*matches)(const std::string& text) = [](const std::string&) { return true; };
  const char* description = "";
};
inline constexpr Form any_text{};

template <class T>
inline constexpr bool is_number = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;
template <class T>
struct ElementOf {
  using type = T;
};
template <class T>
struct ElementOf<std::optional<T>> : ElementOf<T> {};
template <class T>
struct ElementOf<Maybe<T>> : ElementOf<T> {};
template <class T>
struct ElementOf<std::vector<T>> : ElementOf<T> {};
/// The check that a field of type T takes.
template <class T>
using CheckOf = std::conditional_t<is_number<typename ElementOf<T>::type>, Range, Form>;

template <class Archive, class T>
using In = std::conditional_t<Archive::writes, const T&, T&>;

constexpr auto names_of(Kind) {
  return std::array{Kind::measured, Kind::emulated, Kind::predicted};
}
constexpr auto names_of(Status) {
  return std::array{Status::complete, Status::partial, Status::failed};
}
constexpr auto names_of(Origin) { return std::array{Origin::standard, Origin::flag}; }
constexpr auto names_of(Precision) {
  return std::array{Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16};
}

class Writer {
 public:
  static constexpr bool writes = true;

  /// The object so far.
  Json take() {
    if (!unknown_.is_null()) object_["unknown"] = std::move(unknown_);
    return std::move(object_);
  }

  template <class T>
  void operator()(const char* key, const T& value, CheckOf<T> = {}) {
    object_[key] = json_of(value);
  }
  template <class T>
  void operator()(const char* key, const Maybe<T>& value, CheckOf<T> = {}) {
    if (unknown_.is_null()) unknown_ = Json::object();
    object_[key] = value ? json_of(*value) : Json();
    if (!value) unknown_[key] = value.reason;
  }
  template <class T, class... Check>
  void added(const char* key, const T& value, Check... check) {
    (*this)(key, value, check...);
  }
  /// Each field as {value, origin}.
  template <class T>
  void settings(const char* key, const T& values, const Origins& origins) {
    const Json plain = json_of(values);  // items() refers to it
    Json wrapped = Json::object();
    for (const auto& [name, value] : plain.items()) {
      wrapped[name] = {{"value", value}, {"origin", to_string(origins.at(name))}};
    }
    object_[key] = std::move(wrapped);
  }

  template <class T>
  static Json json_of(const T& value) {
    if constexpr (std::is_floating_point_v<T>) {
      if (!std::isfinite(value)) throw std::logic_error("a report must not hold NaN or infinity");
      return value;
    } else if constexpr (std::is_enum_v<T>) {
      return to_string(value);
    } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
      return value;
    } else {
      Writer writer;
      fields(writer, value);
      return writer.take();
    }
  }
  template <class T>
  static Json json_of(const std::optional<T>& value) {
    return value ? json_of(*value) : Json();
  }
  template <class T>
  static Json json_of(const std::vector<T>& values) {
    Json array = Json::array();
    for (const T& value : values) array.push_back(json_of(value));
    return array;
  }
  static Json json_of(const std::map<std::string, std::string>& values) {
    Json object = Json::object();
    for (const auto& [key, value] : values) object[key] = value;
    return object;
  }

 private:
  Json object_ = Json::object();
  Json unknown_;  // null in an object without a field that may be unknown
};

}  // namespace nearmetal::json
