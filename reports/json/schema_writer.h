// How structs are described as JSON Schema, by the lists of fields with which they are written and
// read.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reports/json/json_archive.h"

namespace nearmetal::json {

/// Makes a schema (2020-12) of each struct that it visits. A value that may not be known is null
/// with a reason in `unknown`. In documents of programs other fields are allowed, in those that are
/// written by hand (`strict`) they are not. The values themselves are not looked at.
class SchemaWriter {
 public:
  static constexpr bool writes = true;

  /// The schema of a whole document, an instance of which is given.
  template <class T>
  static Json document(const T& sample, const char* title, bool strict = false) {
    Json types = Json::object();
    SchemaWriter writer(types, strict);
    fields(writer, sample);
    return writer.take_document(title);
  }

  void type(const char* name, const char* about = "");

  template <class T>
  void operator()(const char* key, const T& value, const CheckOf<T>& check = {},
                  const char* about = "") {
    put(key, schema_of(value, check), about, is_maybe<T>);
  }
  template <class T>
  void operator()(const char* key, const T& value, const char* about) {
    (*this)(key, value, {}, about);
  }
  /// Not required, as the next: where reports of earlier versions lack it.
  template <class T, class... More>
  void added(const char* key, const T& value, const More&... more) {
    (*this)(key, value, more...);
    required_.pop_back();
  }
  template <class T, class... More>
  void optional(const char* key, const T& value, const More&... more) {
    added(key, value, more...);
  }
  template <class T, class... More>
  void optional(const char* key, const std::optional<T>&, const More&... more) {
    added(key, T{}, more...);  // left out rather than null
  }
  /// The counterpart of Writer::unit(): the object is described in each unit.
  void unit(const char* key, SampleUnit);
  const UnitWords& words() const { return words_of(unit_); }
  void scalars(const std::map<std::string, std::string>&) {}
  void scalar_lists(const std::map<std::string, std::vector<std::string>>&) {}
  template <class T>
  void settings(const char* key, const T& values, const Origins&, const char* about) {
    SchemaWriter writer(types_, strict_);
    fields(writer, values);
    put(key, or_null(writer.take_settings()), about, false);
  }

 private:
  SchemaWriter(Json& types, bool strict, SampleUnit unit = SampleUnit::image)
      : types_(types), strict_(strict), unit_(unit) {}

  template <class T>
  Json schema_of(const T& value, const CheckOf<T>& check) {
    if constexpr (std::is_same_v<T, bool>) {
      return {{"type", "boolean"}};
    } else if constexpr (std::is_integral_v<T>) {
      return integer(check);
    } else if constexpr (std::is_floating_point_v<T>) {
      return number(check);
    } else if constexpr (std::is_same_v<T, std::string>) {
      return text(check);
    } else if constexpr (std::is_enum_v<T>) {
      return names(names_of(T{}), check);
    } else {
      SchemaWriter writer(types_, strict_, unit_);
      fields(writer, value);
      if (writer.unit_key_.empty()) return writer.take_reference();
      const bool images = unit_ == SampleUnit::image;
      SchemaWriter other(types_, strict_, images ? SampleUnit::sequence : SampleUnit::image);
      fields(other, value);
      return by_unit(writer, other);
    }
  }
  template <class T>
  Json schema_of(const std::optional<T>&, const CheckOf<T>& check) {
    return or_null(schema_of(T{}, check));
  }
  template <class T>
  Json schema_of(const Maybe<T>&, const CheckOf<T>& check) {
    return or_null(schema_of(T{}, check));
  }
  template <class T>
  Json schema_of(const std::vector<T>&, const CheckOf<T>& check) {
    return {{"type", "array"}, {"items", schema_of(T{}, check)}};
  }
  Json schema_of(const std::map<std::string, std::string>&, const Form& form);

  void put(const char* key, const Json& schema, const char* about, bool may_be_unknown);
  Json take_object();
  Json take_reference();
  Json take_settings();
  static Json by_unit(SchemaWriter& around, SchemaWriter& other);
  Json take_document(const char* title);
  static Json integer(Range range);
  static Json number(const Range& range);
  static Json text(const Form& form);
  static Json names(std::span<const char* const> names, Names allowed);
  static Json or_null(Json schema);

  Json& types_;  // by name, of the whole document
  bool strict_;
  SampleUnit unit_;
  std::string unit_key_;  // empty: the unit is not said here
  std::string name_;
  std::string about_;
  Json properties_ = Json::object();
  std::vector<std::string> required_;
  Json conditions_ = Json::array();
};

/// The schema as a text of lines that are at most 100 characters long where that can be.
std::string schema_text(const Json& schema);

}  // namespace nearmetal::json
