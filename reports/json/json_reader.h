// Reads structs from JSON, each field checked.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "models/errors.h"
#include "reports/json/json.h"
#include "reports/json/json_archive.h"

namespace nearmetal {

/// Why a text is not JSON, in one line: what nlohmann::json throws, "[json.exception...] parse
/// error at ...". The word where it stopped is quoted there, however long: what goes beyond 200
/// bytes is cut.
std::string parser_reason(const std::string& what);

}  // namespace nearmetal

namespace nearmetal::json {

/// The document that is read: keys in a map, so that an object with many of them takes no quadratic
/// time.
using Document = nlohmann::json;

/// Where a value stands, as a chain from the root. The text is made only for an error.
struct Place {
  const Place* parent = nullptr;  // none: the root
  std::string_view key;           // of an object's member
  std::optional<size_t> index;    // of a list's element

  /// A JSON pointer (RFC 6901).
  std::string pointer() const;
};

/// Throws InvalidReport.
[[noreturn]] void fail(const Place& place, const std::string& must_be);

// The values of a JSON scalar that is as it must be, or fail(). Not templates: what is the same for
// all fields is not compiled anew for each of them.
bool truth_at(const Document& json, const Place& place);
double number_at(const Document& json, const Place& place, const Range& range);
double integer_at(const Document& json, const Place& place, const Range& range);
std::string text_at(const Document& json, const Place& place, const Form& form);
/// The index of the name that is there.
size_t name_at(const Document& json, const Place& place, std::span<const char* const> names,
               Names allowed);

/// In a document of a program, fields that are not known are tolerated, as minor versions of its
/// schema add them; in one that is written by hand (`strict`) they are refused.
template <bool strict>
class BasicReader {
 public:
  static constexpr bool writes = false;

  BasicReader(const Document& object, const Place& place, Origins* origins = nullptr);

  void type(const char*, const char* = "") {}
  template <class T>
  void operator()(const char* key, T& value, const CheckOf<T>& check = {}, const char* = "") {
    read(member(key), Place{&place_, key, {}}, value, check);
  }
  template <class T>
  void operator()(const char* key, T& value, const char*) {
    (*this)(key, value);
  }
  template <class T>
  void operator()(const char* key, Maybe<T>& value, const char*) {
    (*this)(key, value);
  }
  template <class T>
  void operator()(const char* key, Maybe<T>& value, const CheckOf<T>& check = {},
                  const char* = "") {
    if (!reasons_) {
      read(member("unknown"), Place{&place_, "unknown", {}}, reasons_.emplace(), {});
    }
    const Document& found = member(key);
    if (!found.is_null()) {
      value = T{};
      return read(found, Place{&place_, key, {}}, *value.value, check);
    }
    value = Unknown{reason(key)};
  }
  /// A field that a minor version added: where an earlier report lacks it, `value` stays.
  template <class T, class... More>
  void added(const char* key, T& value, const More&... more) {
    if (object_.contains(key)) return (*this)(key, value, more...);
    if (origins_ != nullptr) (*origins_)[key] = Origin::standard;
  }
  template <class T>
  void settings(const char* key, T& values, Origins& origins, const char*) {
    const Document& found = member(key);
    if (found.is_null()) return origins.clear();
    const Place place{&place_, key, {}};
    BasicReader reader(found, place, &origins);
    fields(reader, values);
  }
  /// Reads what Writer::unit() writes.
  void unit(const char* key, SampleUnit& value) {
    value = unit_;
    optional(key, value);
    unit_ = value;
  }
  const UnitWords& words() const { return words_of(unit_); }
  /// A field that may be left out: then `value` stays.
  template <class T, class... More>
  void optional(const char* key, T& value, const More&... more) {
    if (strict) known_.emplace_back(key);
    if (object_.contains(key)) (*this)(key, value, more...);
  }
  /// Throws InvalidReport where there is no such field.
  void require(const char* key) { member(key); }
  /// Every member of the object, numbers and truth values as their text.
  void scalars(std::map<std::string, std::string>& values);
  /// The same of an object whose members are lists of such values.
  void scalar_lists(std::map<std::string, std::vector<std::string>>& values);
  /// After all fields: throws InvalidReport for a member that is none of them.
  void require_all_known() const;

 private:
  const Document& member(const char* key);
  /// Throws InvalidReport for a field that is not known, and like the one that is missing.
  void refuse_misspelt(const char* missing) const;
  /// Why the value of `key`, which is null, is not known.
  const std::string& reason(const char* key) const;

  template <class T>
  void read(const Document& json, const Place& place, T& value, const CheckOf<T>& check) {
    if constexpr (std::is_same_v<T, bool>) {
      value = truth_at(json, place);
    } else if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>(integer_at(json, place, check));
    } else if constexpr (std::is_floating_point_v<T>) {
      value = static_cast<T>(number_at(json, place, check));
    } else if constexpr (std::is_same_v<T, std::string>) {
      value = text_at(json, place, check);
    } else if constexpr (std::is_enum_v<T>) {
      static constexpr auto names = names_of(T{});
      value = static_cast<T>(name_at(json, place, names, check));
    } else {
      BasicReader reader(json, place);
      reader.unit_ = unit_;
      fields(reader, value);
      if constexpr (strict) reader.require_all_known();
    }
  }
  template <class T>
  void read(const Document& json, const Place& place, std::optional<T>& value,
            const CheckOf<T>& check) {
    value.reset();
    if (strict || !json.is_null()) read(json, place, value.emplace(), check);
  }
  template <class T>
  void read(const Document& json, const Place& place, std::vector<T>& values,
            const CheckOf<T>& check) {
    if (!json.is_array()) fail(place, "a list");
    values.clear();  // grown as read: what is wrong early takes no room for all
    if constexpr (sizeof(T) <= sizeof(std::string)) values.reserve(json.size());
    for (size_t i = 0; i < json.size(); ++i) {
      read(json[i], Place{&place, {}, i}, values.emplace_back(), check);
    }
  }
  void read(const Document& json, const Place& place, std::map<std::string, std::string>& values,
            const Form&);

  const Document& object_;
  Place place_;
  Origins* origins_;
  SampleUnit unit_ = SampleUnit::image;
  std::optional<std::map<std::string, std::string>> reasons_;  // of what is unknown
  std::vector<std::string> known_;                             // fields, in strict documents
};

extern template class BasicReader<false>;
extern template class BasicReader<true>;
using Reader = BasicReader<false>;
using StrictReader = BasicReader<true>;

/// Reads a document. Throws InvalidReport, for what is no JSON with these words.
template <class T>
T parsed(const std::string& text, const char* not_json = "not JSON") {
  require_within_limits(text);
  T value;
  try {
    const Document document = Document::parse(text);
    Reader reader(document, Place{});
    fields(reader, value);
  } catch (const Document::exception&) {
    throw InvalidReport(not_json);
  }
  return value;
}

/// A report as a field of another document. Compiled once, in json.cpp, as it is the largest of
/// all.
void fields(Writer& field, const Report& report);
void fields(Reader& field, Report& report);

}  // namespace nearmetal::json
