// Reads structs from JSON, each field checked.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "reports/json.h"
#include "reports/json_archive.h"

namespace nearmetal::json {

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

/// In a document of a program, fields that are not known are tolerated, as minor versions of its
/// schema add them; in one that is written by hand (`strict`) they are refused.
template <bool strict>
class BasicReader {
 public:
  static constexpr bool writes = false;

  BasicReader(const Document& object, const Place& place, Origins* origins = nullptr)
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
  /// A field that a minor version added: where an earlier report lacks it, `value` stays.
  template <class T, class... Check>
  void added(const char* key, T& value, Check... check) {
    if (object_.contains(key)) return (*this)(key, value, check...);
    if (origins_ != nullptr) (*origins_)[key] = Origin::standard;
  }
  template <class T>
  void settings(const char* key, T& values, Origins& origins) {
    const Place place{&place_, key, {}};
    BasicReader reader(member(key), place, &origins);
    fields(reader, values);
  }
  /// A field that may be left out: then `value` stays.
  template <class T, class Check = CheckOf<T>>
  void optional(const char* key, T& value, Check check = {}) {
    if (strict) known_.emplace_back(key);
    if (object_.contains(key)) read(member(key), Place{&place_, key, {}}, value, check);
  }
  /// Every member of the object, numbers and truth values as their text.
  void scalars(std::map<std::string, std::string>& values) {
    for (const auto& [key, value] : object_.items()) {
      const Place place{&place_, key, {}};
      if (value.is_structured() || value.is_null()) fail(place, "a text, a number, true or false");
      values[key] = value.is_string() ? value.template get<std::string>() : value.dump();
      if (strict) known_.push_back(key);
    }
  }
  /// After all fields: throws InvalidReport for a member that is none of them.
  void require_all_known() const {
    for (const auto& [key, value] : object_.items()) {
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      std::string names;
      for (const std::string& name : known_) names += (names.empty() ? "" : ", ") + name;
      throw InvalidReport(Place{&place_, key, {}}.pointer() + " is not known; there are: " + names);
    }
  }

  [[noreturn]] static void fail(const Place& place, const std::string& must_be) {
    const std::string pointer = place.pointer();
    throw InvalidReport((pointer.empty() ? "/" : pointer) + " must be " + must_be);
  }

 private:
  const Document& member(const char* key) {
    if (strict) known_.emplace_back(key);
    const auto found = object_.find(key);
    const Place place{&place_, key, {}};
    if (found == object_.end()) fail(place, "there");
    if (origins_ == nullptr) return *found;
    BasicReader setting(*found, place);
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
      BasicReader reader(json, place);
      fields(reader, value);
      if constexpr (strict) reader.require_all_known();
    }
  }
  template <class T>
  static void read(const Document& json, const Place& place, std::optional<T>& value,
                   CheckOf<T> check) {
    value.reset();
    if (strict || !json.is_null()) read(json, place, value.emplace(), check);
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
    const auto text = [](double bound) {
      const bool whole = std::abs(bound) < 1e15 && bound == std::trunc(bound);
      return whole ? std::to_string(static_cast<int64_t>(bound)) : Document(bound).dump();
    };
    if (std::isfinite(range.maximum)) {
      return "from " + text(range.minimum) + " to " + text(range.maximum);
    }
    return (range.above_minimum ? "above " : "at least ") + text(range.minimum);
  }

  const Document& object_;
  Place place_;
  Origins* origins_;
  std::optional<std::map<std::string, std::string>> reasons_;  // of what is unknown
  std::vector<std::string> known_;                             // fields, in strict documents
};

using Reader = BasicReader<false>;
using StrictReader = BasicReader<true>;

}  // namespace nearmetal::json
