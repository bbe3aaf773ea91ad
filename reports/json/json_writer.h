// Writes structs as JSON, and describes them as JSON Schema by the lists of fields with which they
// are written and read.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reports/json/archive.h"

namespace nearmetal::json {

using Json = nlohmann::ordered_json;

/// The text of a value: on one line, or on many with the end of the last, as files and people get
/// it: with escapes for what could steer a terminal.
std::string line_of(const Json& json);
std::string lines_of(const Json& json);

class Writer : public Archive {
 public:
  static Json json_of(const Object& object);

  void unit(const char* key, SampleUnit& value) override;

 private:
  explicit Writer(SampleUnit unit = SampleUnit::image) : Archive(unit) {}

  void take(const Field& field) override;
  void take_settings(const char* key, const Type& type, void* values, Origins& origins,
                     const char* about) override;
  void take_maybe(const Field& field);
  Json json_of(const Type& type, void* value) const;
  Json take_object();

  Json object_ = Json::object();
  Json unknown_;  // null in an object without a field that may be unknown
};

/// Makes a schema (2020-12) of each struct that it visits. A value that may not be known is null
/// with a reason in `unknown`. In documents of programs other fields are allowed, in those that are
/// written by hand (`strict`) they are not. The values themselves are not looked at.
class SchemaWriter : public Archive {
 public:
  /// The schema of a whole document, an instance of which is given.
  static Json document(const Object& sample, const char* title, bool strict = false);

  void type(const char* name, const char* about = "") override;
  /// The counterpart of Writer::unit(): the object is described in each unit.
  void unit(const char* key, SampleUnit&) override;

 private:
  SchemaWriter(Json& types, bool strict, SampleUnit unit = SampleUnit::image)
      : Archive(unit), types_(types), strict_(strict) {}

  void take(const Field& field) override;
  void take_settings(const char* key, const Type& type, void* values, Origins& origins,
                     const char* about) override;
  void put(const char* key, const Json& schema, const char* about);
  Json schema_of(const Type& type, const Check& check);
  Json schema_of_object(const Type& type);
  Json take_object();
  Json take_reference();
  Json take_settings();
  static Json by_unit(SchemaWriter& around, SchemaWriter& other);
  Json take_document(const char* title);

  Json& types_;  // by name, of the whole document
  bool strict_;
  std::string unit_key_;  // empty: the unit is not said here
  std::string name_;
  std::string about_;
  Json properties_ = Json::object();
  std::vector<std::string> required_;
  Json conditions_ = Json::array();
  bool needs_unknown_ = false;  // also where nothing is null
};

/// The schema as a text of lines that are at most 100 characters long where that can be.
std::string schema_text(const Json& schema);

}  // namespace nearmetal::json
