// Writes structs as JSON.
#pragma once

#include <nlohmann/json.hpp>

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

}  // namespace nearmetal::json
