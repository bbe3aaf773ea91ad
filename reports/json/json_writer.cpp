#include "reports/json/json_writer.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>
#include <utility>

#include "base/text_table.h"

namespace nearmetal::json {
namespace {

Json finite(double value) {
  if (!std::isfinite(value)) throw std::logic_error("a report must not hold NaN or infinity");
  return value;
}

constexpr size_t longest_line = 100;

Json bound(double value) {
  const auto whole = static_cast<int64_t>(value);
  return static_cast<double>(whole) == value ? Json(whole) : Json(value);
}

Json described(const std::string& about, const Json& schema) {
  Json object = Json::object();
  if (!about.empty()) object["description"] = about;
  object.update(schema);
  return object;
}

Json of_type(const char* type) { return {{"type", type}}; }

Json of_number(const Range& range) {
  Json schema = of_type("number");
  if (std::isfinite(range.minimum)) {
    schema[range.above_minimum ? "exclusiveMinimum" : "minimum"] = bound(range.minimum);
  }
  if (std::isfinite(range.maximum)) schema["maximum"] = bound(range.maximum);
  return schema;
}

Json of_integer(Range range) {
  range.minimum = std::max(range.minimum, -static_cast<double>(largest_integer));
  range.maximum = std::min(range.maximum, static_cast<double>(largest_integer));
  Json schema = of_number(range);
  schema["type"] = "integer";
  return schema;
}

Json of_text(const Form& form) {
  if (const auto names = form.all_names(); !names.empty()) {
    return names.size() == 1 ? Json{{"const", names.front()}} : Json{{"enum", names}};
  }
  Json schema = of_type("string");
  if (form.pattern != nullptr) schema["pattern"] = form.pattern;
  return schema;
}

Json of_names(std::span<const char* const> names, Names allowed) {
  Json list = Json::array();
  for (size_t i = 0; i < names.size(); ++i) {
    if (allowed.allow(i)) list.push_back(names[i]);
  }
  return {{"enum", list}};
}

Json or_null(Json schema) { return {{"anyOf", Json::array({std::move(schema), of_type("null")})}}; }

Json of_texts(const Form& form) {
  return {{"type", "object"}, {"additionalProperties", of_text(form)}};
}

// Where the field is null, `unknown` says why. It may be missing elsewhere if `once_known`.
Json needs_reason(const std::string& key, bool once_known) {
  const Json names = Json::array({key});
  Json then = {{"properties", {{"unknown", {{"required", names}}}}}};
  if (once_known) then["required"] = Json::array({"unknown"});
  return {{"if", {{"required", names}, {"properties", {{key, of_type("null")}}}}},
          {"then", std::move(then)}};
}

// `indent`: of the line on which it begins; `begun`: how long that line is already.
std::string lines(const Json& json, size_t indent, size_t begun) {
  const bool is_object = json.is_object();
  if (!json.is_structured()) return json.dump();
  std::string one_line;
  std::string several;
  const std::string margin(indent + 2, ' ');
  for (const auto& [key, value] : json.items()) {
    const std::string name = is_object ? Json(key).dump() + ": " : "";
    const size_t taken = margin.size() + name.size();
    one_line += (one_line.empty() ? "" : ", ") + name + lines(value, 0, 0);
    several += (several.empty() ? "" : ",\n") + margin + name + lines(value, indent + 2, taken);
  }
  const char* ends = is_object ? "{}" : "[]";
  const bool fits = begun + one_line.size() + 3 <= longest_line;  // with ends and a comma
  if (fits && one_line.find('\n') == std::string::npos) return ends[0] + one_line + ends[1];
  return std::string(1, ends[0]) + "\n" + several + "\n" + std::string(indent, ' ') + ends[1];
}

}  // namespace

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string lines_of(const Json& json) {
  return printable_json(json.dump(2, ' ', false, Json::error_handler_t::replace)) + "\n";
}

Json Writer::json_of(const Object& object) {
  Writer writer;
  object.visit(writer, object.value);
  return writer.take_object();
}

Json Writer::take_object() {
  if (!unknown_.is_null()) object_["unknown"] = std::move(unknown_);
  return std::move(object_);
}

void Writer::unit(const char* key, SampleUnit& value) {
  if (value != unit_) object_[key] = to_string(value);
  unit_ = value;
}

void Writer::take(const Field& field) {
  const Type& type = field.type;
  if (type.kind == Type::Kind::maybe) return take_maybe(field);
  const bool is_none = type.kind == Type::Kind::optional && type.size(field.value) == 0;
  if (field.presence == Presence::optional && is_none) return;
  object_[field.key] = json_of(type, field.value);
}

void Writer::take_maybe(const Field& field) {
  if (unknown_.is_null()) unknown_ = Json::object();
  const Json value = json_of(*field.type.element, field.type.within(field.value));
  if (value.is_null()) unknown_[field.key] = field.type.reason(field.value);
  object_[field.key] = value;
}

void Writer::take_settings(const char* key, const Type& type, void* values, Origins& origins,
                           const char*) {
  Json& wrapped = object_[key];
  if (origins.empty()) return;
  const Json plain = Writer().json_of(type, values);
  for (const auto& [name, value] : plain.items()) {
    wrapped[name] = {{"value", value}, {"origin", to_string(origins.at(name))}};
  }
}

Json Writer::json_of(const Type& type, void* value) const {
  switch (type.kind) {
    case Type::Kind::truth:
      return as<bool>(value);
    case Type::Kind::integer:
      return type.get(value);
    case Type::Kind::number:
      return finite(as<double>(value));
    case Type::Kind::text:
      return as<std::string>(value);
    case Type::Kind::texts:
      return as<std::map<std::string, std::string>>(value);
    case Type::Kind::name:
      return type.names[static_cast<size_t>(type.get(value))];
    case Type::Kind::optional:
      return type.size(value) == 0 ? Json() : json_of(*type.element, type.at(value, 0));
    case Type::Kind::list: {
      Json::array_t list(type.size(value));
      for (size_t i = 0; i < list.size(); ++i) list[i] = json_of(*type.element, type.at(value, i));
      return list;
    }
    case Type::Kind::object: {
      Writer writer(unit_);
      type.visit(writer, value);
      return writer.take_object();
    }
    case Type::Kind::maybe:
      break;
  }
  throw std::logic_error("a value that may not be known is a field of its own");
}

std::string schema_text(const Json& schema) { return lines(schema, 0, 0) + "\n"; }

Json SchemaWriter::document(const Object& sample, const char* title, bool strict) {
  Json types = Json::object();
  SchemaWriter writer(types, strict);
  sample.visit(writer, sample.value);
  return writer.take_document(title);
}

void SchemaWriter::type(const char* name, const char* about) {
  name_ = name;
  about_ = about;
}

void SchemaWriter::take(const Field& field) {
  const Type& type = field.type;
  const bool left_out_rather_than_null =
      field.presence == Presence::optional && type.kind == Type::Kind::optional;
  put(field.key, schema_of(left_out_rather_than_null ? *type.element : type, field.check),
      field.about);
  if (may_be_missing(field.presence)) required_.pop_back();
  if (type.kind != Type::Kind::maybe) return;
  const bool once_known = field.presence == Presence::once_known;
  conditions_.push_back(needs_reason(field.key, once_known));
  needs_unknown_ = needs_unknown_ || !once_known;
}

void SchemaWriter::take_settings(const char* key, const Type& type, void*, Origins&,
                                 const char* about) {
  SchemaWriter writer(types_, strict_);
  type.describe(writer);
  put(key, or_null(writer.take_settings()), about);
}

Json SchemaWriter::schema_of(const Type& type, const Check& check) {
  switch (type.kind) {
    case Type::Kind::truth:
      return of_type("boolean");
    case Type::Kind::integer:
      return of_integer(check.range);
    case Type::Kind::number:
      return of_number(check.range);
    case Type::Kind::text:
      return of_text(*check.form);
    case Type::Kind::texts:
      return of_texts(*check.form);
    case Type::Kind::name:
      return of_names(type.names, check.names);
    case Type::Kind::optional:
      return or_null(schema_of(*type.element, check));
    case Type::Kind::maybe:
      return schema_of(*type.element, check);
    case Type::Kind::list:
      return {{"type", "array"}, {"items", schema_of(*type.element, check)}};
    case Type::Kind::object:
      return schema_of_object(type);
  }
  throw std::logic_error("a type of no kind");
}

Json SchemaWriter::schema_of_object(const Type& type) {
  SchemaWriter writer(types_, strict_, unit_);
  type.describe(writer);
  if (writer.unit_key_.empty()) return writer.take_reference();
  const bool images = unit_ == SampleUnit::image;
  SchemaWriter other(types_, strict_, images ? SampleUnit::sequence : SampleUnit::image);
  type.describe(other);
  return by_unit(writer, other);
}

void SchemaWriter::put(const char* key, const Json& schema, const char* about) {
  properties_[key] = described(about, schema);
  required_.emplace_back(key);
}

Json SchemaWriter::take_object() {
  const bool has_unknown = !conditions_.empty();
  if (has_unknown) put("unknown", of_texts(any_text), "");
  if (has_unknown && !needs_unknown_) required_.pop_back();
  Json object = described(about_, of_type("object"));
  if (!required_.empty()) object["required"] = required_;
  if (strict_) object["additionalProperties"] = false;
  object["properties"] = properties_;
  if (has_unknown) object["allOf"] = conditions_;
  return object;
}

Json SchemaWriter::take_reference() {
  if (name_.empty()) throw std::logic_error("a type of a schema has no name");
  const Json object = take_object();
  const bool differs = types_.contains(name_) && types_[name_] != object;
  if (differs) name_ += std::string("_of_") + words().plural;
  types_[name_] = object;
  return {{"$ref", "#/$defs/" + name_}};
}

void SchemaWriter::unit(const char* key, SampleUnit&) {
  unit_key_ = key;
  put(key, {{"const", to_string(unit_)}},
      "What is counted; not there: as around it, at first images");
  required_.pop_back();
}

// Without a word the unit is that of the object around.
Json SchemaWriter::by_unit(SchemaWriter& around, SchemaWriter& other) {
  const std::string& key = other.unit_key_;
  const Json named = other.properties_[key];
  const Json unsaid = around.take_reference();  // first: shared types have their names
  return {{"if", {{"required", Json::array({key})}, {"properties", {{key, named}}}}},
          {"then", other.take_reference()},
          {"else", unsaid}};
}

Json SchemaWriter::take_settings() {
  const Json origin = of_names(names_list<Origin>, {});
  for (auto& [key, property] : properties_.items()) {
    Json value = property;
    value.erase("description");
    Json setting = of_type("object");
    setting["required"] = {"value", "origin"};
    setting["properties"] = {{"value", value}, {"origin", origin}};
    property = described(property.value("description", ""), setting);
  }
  name_ += "_with_origins";
  return take_reference();
}

Json SchemaWriter::take_document(const char* title) {
  Json document = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                   {"$id", "urn:nearmetal:" + name_ + ":1"},
                   {"title", title}};
  document.update(take_object());
  document["$defs"] = types_;
  return document;
}

}  // namespace nearmetal::json
