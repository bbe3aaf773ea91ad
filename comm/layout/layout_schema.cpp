#include "comm/layout/layout_fields.h"
#include "comm/layout/layout_json.h"
#include "reports/json/schema_writer.h"

namespace nearmetal {
namespace {

using json::Json;

struct WorkloadSetting {
  const char* name;
  const char* type;  // numbers may be texts, too, as in "2m"
  const char* about = "";
};

// Settings of `run` that layouts may have; bench/cli/run_arguments.h reads them.
constexpr WorkloadSetting workload_settings[] = {
    {"model", "string"},
    {"precision", "string"},
    {"batch", "integer", "Images per step of each rank"},
    {"global_batch", "integer",
     "Images per step of all ranks of a job, which share them evenly; instead of batch"},
    {"image_size", "integer"},
    {"classes", "integer"},
    {"seed", "integer"},
    {"forward_only", "boolean"},
    {"input", "string"},
    {"launch", "string"},
    {"threads", "integer"},
    {"bind", "string"},
    {"update", "string"},
    {"bucket_mib", "number"},
    {"gradient_type", "string"},
    {"all_reduce", "string"},
    {"nccl_algorithm", "string"},
    {"steps", "integer"},
    {"duration", "number", "Such as 30, \"30s\" or \"2m\""},
    {"warmup", "integer"},
    {"verify", "boolean"},
    {"profile", "boolean"},
    {"attribute", "boolean"},
    {"learning_rate", "number"},
    {"momentum", "number"},
    {"weight_decay", "number"},
    {"zero_init", "boolean"},
    {"loss_scale", "number"},
};

Json workload_properties() {
  Json properties = Json::object();
  for (const auto& [name, type, about] : workload_settings) {
    const std::string kind = type;
    Json& property = properties[name] = Json::object();
    if (*about != '\0') property["description"] = about;
    property["type"] = kind == "string" || kind == "boolean" ? Json(kind) : Json{kind, "string"};
  }
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
