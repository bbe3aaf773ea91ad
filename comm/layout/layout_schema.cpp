#include "comm/layout/layout_fields.h"
#include "comm/layout/layout_json.h"
#include "reports/document/settings.h"
#include "reports/json/schema_writer.h"

namespace nearmetal {
namespace {

using json::Json;

// What a layout file writes for a setting: as a number, or as the text that its option takes.
template <class T>
Json type_of(const T&) {
  if constexpr (std::is_same_v<T, bool>) return "boolean";
  if constexpr (std::is_same_v<T, int64_t>) return {"integer", "string"};
  if constexpr (std::is_same_v<T, double> || std::is_same_v<T, LossScale>) {
    return {"number", "string"};
  }
  return "string";
}
template <class T>
Json type_of(const std::optional<T>&) {
  return type_of(T{});
}

Json workload_properties() {
  Json properties = Json::object();
  const RunConfig config;
  visit_settings(
      [&](const Setting& setting, const auto& value) {
        if ((setting.commands & in_sweep) == 0) return;
        properties[layout_name_of(setting)] = {{"description", setting.help},
                                               {"type", type_of(value)}};
      },
      config);
  properties["global_batch"] = {
      {"description",
       "Images per step of all ranks of a job, which share them evenly; instead of batch"},
      {"type", type_of(int64_t{})}};
  return properties;
}

}  // namespace

std::string layout_schema() {
  Json schema = json::SchemaWriter::document(LayoutFile{}, "Layout file of nearmetal", true);
  schema["properties"]["layouts"]["minItems"] = 1;
  Json& types = schema["$defs"];
  types["job"]["properties"]["instances"]["minItems"] = 1;
  types["layout"]["anyOf"] = Json::array(
      {{{"required", Json::array({"shape"})}}, {{"required", Json::array({"name", "jobs"})}}});
  Json& variables = types["launcher"]["properties"]["variables"];
  variables["propertyNames"] = {{"pattern", "^[A-Za-z_][A-Za-z0-9_]{0,199}$"}};
  variables["additionalProperties"] = {{"type", "string"},
                                       {"pattern", R"(^[^\u0000-\u001f\u007f]{0,999}$)"}};
  types["workload"]["properties"] = workload_properties();
  return json::schema_text(schema);
}

}  // namespace nearmetal
