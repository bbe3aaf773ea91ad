// Writes structs as JSON and reads them back, checked: one list of fields per struct serves both.
#pragma once

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "reports/json.h"
#include "reports/types.h"

// A struct takes part by a function template found by argument-dependent look-up:
//   template <class Archive> void fields(Archive& field, In<Archive, Tool> tool) {
//     field("version", tool.version);
//     field("steps", window.steps, at_least(1));
//   }
// Numbers are checked against a Range, texts by a Form; of lists, each element. Reading tolerates
// fields that it does not know, as minor versions of the schema add them.
namespace nearmetal::json {

using Json = nlohmann::ordered_json;

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

/// What is read: keys in a map, so that an object with many of them takes no quadratic time.
using Document = nlohmann::json;

/// Where a value stands, as a chain from the root. The text is made only for an error.
struct Place {
  const Place* parent = nullptr;  // none: the root
  std::string_view key;           // of an object's member
  std::optional<size_t> index;    // of a list's element

  /// A JSON pointer (RFC 6901).
  std::string pointer() const {
    if (parent == nullptr) return "";
    std::string text = parent->pointer() + "/";
    if (index) return text + std::to_string(*index);
    for (const char c : key) {
      if (c == '~') {
        text += "~0";
      } else if (c == '/') {
        text += "~1";
      } else {
        text += c;
      }
    }
    return text;
  }
};

class Reader {
 public:
  static constexpr bool writes = false;

  Reader(const Document& object, const Place& place, Origins* origins = nullptr)
      : object_(object), place_(place), origins_(origins) {
    if (!object_.is_object()) fail(place_, "an object");
  }

  template <class T>
  void operator()(const char* key, T& value, CheckOf<T> check = {}) {
    read(member(key), Place{&place_, key, {}}, value, check);
  }
  template <class T>
  void operator()(const char* key, Maybe<T>& value, CheckOf<T> check = {}) {
    if (!reasons_) {
      read(member("unknown"), Place{&place_, "unknown", {}}, reasons_.emplace(), {});
    }
    const Document& found = member(key);
    if (!found.is_null()) {
      value = T{};
      return read(found, Place{&place_, key, {}}, *value.value, check);
    }
    const auto reason = reasons_->find(key);
    if (reason == reasons_->end()) {
      const Place unknown{&place_, "unknown", {}};
      fail(Place{&unknown, key, {}}, "there, as the value is null");
    }
    value = Unknown{reason->second};
  }
  template <class T>
  void settings(const char* key, T& values, Origins& origins) {
    const Place place{&place_, key, {}};
    Reader reader(member(key), place, &origins);
    fields(reader, values);
  }

  [[noreturn]] static void fail(const Place& place, const std::string& must_be) {
    const std::string pointer = place.pointer();
    throw InvalidReport((pointer.empty() ? "/" : pointer) + " must be " + must_be);
  }

 private:
  const Document& member(const char* key) {
    const auto found = object_.find(key);
    const Place place{&place_, key, {}};
    if (found == object_.end()) fail(place, "there");
    if (origins_ == nullptr) return *found;
    Reader setting(*found, place);
    setting("origin", (*origins_)[key]);
    return setting.member("value");
  }

  template <class T>
  static void read(const Document& json, const Place& place, T& value, CheckOf<T> check) {
    if constexpr (std::is_same_v<T, bool>) {
      if (!json.is_boolean()) fail(place, "true or false");
      value = json.get<bool>();
    } else if constexpr (is_number<T>) {
      read_number(json, place, value, check);
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!json.is_string()) fail(place, "a text");
      value = json.get<std::string>();
      if (!check.matches(value)) fail(place, check.description);
    } else if constexpr (std::is_enum_v<T>) {
      read_name(json, place, value);
    } else {
      Reader reader(json, place);
      fields(reader, value);
    }
  }
  template <class T>
  static void read(const Document& json, const Place& place, std::optional<T>& value,
                   CheckOf<T> check) {
    value.reset();
    if (!json.is_null()) read(json, place, value.emplace(), check);
  }
  template <class T>
  static void read(const Document& json, const Place& place, std::vector<T>& values,
                   CheckOf<T> check) {
    if (!json.is_array()) fail(place, "a list");
    values.assign(json.size(), T{});
    for (size_t i = 0; i < values.size(); ++i) {
      read(json[i], Place{&place, {}, i}, values[i], check);
    }
  }
  static void read(const Document& json, const Place& place,
                   std::map<std::string, std::string>& values, Form) {
    if (!json.is_object()) fail(place, "an object");
    for (const auto& [key, value] : json.items()) {
      read(value, Place{&place, key, {}}, values[key], {});
    }
  }

  template <class T>
  static void read_number(const Document& json, const Place& place, T& value, const Range& range) {
    if (!json.is_number()) fail(place, "a number");
    const double number = json.get<double>();
    if constexpr (std::is_integral_v<T>) {
      if (number != std::trunc(number)) fail(place, "an integer");
      if (std::abs(number) > static_cast<double>(largest_integer)) {
        fail(place, "within the integers that a double holds");
      }
    }
    const bool below = range.above_minimum ? !(number > range.minimum) : number < range.minimum;
    if (below || number > range.maximum) fail(place, described(range));
    value = static_cast<T>(number);
  }
  template <class T>
  static void read_name(const Document& json, const Place& place, T& value) {
    std::string names;
    for (const T candidate : names_of(T{})) {
      if (json == to_string(candidate)) {
        value = candidate;
        return;
      }
      names += std::string(names.empty() ? "" : ", ") + to_string(candidate);
    }
    fail(place, "one of: " + names);
  }
  static std::string described(const Range& range) {
    const auto text = [](double bound) { return Document(bound).dump(); };
    if (std::isfinite(range.maximum)) {
      return "from " + text(range.minimum) + " to " + text(range.maximum);
    }
    return (range.above_minimum ? "above " : "at least ") + text(range.minimum);
  }

  const Document& object_;
  Place place_;
  Origins* origins_;
  std::optional<std::map<std::string, std::string>> reasons_;  // of what is unknown
};

}  // namespace nearmetal::json
