#include "reports/json/json_archive.h"

#include <cmath>

namespace nearmetal::json {

Json Writer::take() {
  if (!unknown_.is_null()) object_["unknown"] = std::move(unknown_);
  return std::move(object_);
}

void Writer::unit(const char* key, SampleUnit value) {
  unit_ = value;
  if (value != SampleUnit::image) put(key, json_of(value));
}

Json Writer::json_of(const std::map<std::string, std::string>& values, SampleUnit) {
  Json object = Json::object();
  for (const auto& [key, value] : values) object[key] = value;
  return object;
}

void Writer::put(const char* key, Json value) { object_[key] = std::move(value); }

void Writer::put_known(const char* key, Json value) {
  if (unknown_.is_null()) unknown_ = Json::object();
  put(key, std::move(value));
}

void Writer::put_unknown(const char* key, const std::string& reason) {
  put_known(key, Json());
  unknown_[key] = reason;
}

void Writer::put_settings(const char* key, const Json& plain, const Origins& origins) {
  Json wrapped = Json::object();
  for (const auto& [name, value] : plain.items()) {
    wrapped[name] = {{"value", value}, {"origin", to_string(origins.at(name))}};
  }
  put(key, std::move(wrapped));
}

Json Writer::scalar(bool value) { return value; }
Json Writer::scalar(int64_t value) { return value; }
Json Writer::scalar(uint64_t value) { return value; }
Json Writer::scalar(double value) {
  if (!std::isfinite(value)) throw std::logic_error("a report must not hold NaN or infinity");
  return value;
}
Json Writer::scalar(const std::string& value) { return value; }
Json Writer::list(std::vector<Json> values) { return Json::array_t(std::move(values)); }

}  // namespace nearmetal::json
