#include "reports/json/json_writer.h"

#include <cmath>
#include <stdexcept>
#include <utility>

#include "base/text_table.h"

namespace nearmetal::json {
namespace {

Json finite(double value) {
  if (!std::isfinite(value)) throw std::logic_error("a report must not hold NaN or infinity");
  return value;
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

}  // namespace nearmetal::json
