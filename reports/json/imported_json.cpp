#include "reports/json/imported_json.h"

#include "reports/json/place.h"

namespace nearmetal::json {
namespace {

void require_arm_alone(const Arm& arm, bool imported, const Place& place) {
  const auto require = [&](bool holds, const char* key, const char* must_be) {
    if (!holds) fail(Place{&place, key, {}}, must_be);
  };
  require((arm.kind == Kind::imported) == imported, "kind",
          imported ? "imported, as that of the report" : "that of a run");
  require(arm.imported.empty() != imported, "imported",
          imported ? "a list of results" : "empty, as the kind is not imported");
  require(!imported || arm.runs.empty(), "runs", "empty, as results are imported");
}

}  // namespace

void require_kind_alone(const Report& report) {
  const bool imported = report.kind == Kind::imported;
  const Place root, invocation{&root, "invocation", {}}, arms{&root, "arms", {}};
  const char* must_be = imported ? "null, as results are imported" : "there";
  if (report.invocation.origins.empty() != imported) fail({&invocation, "config", {}}, must_be);
  if (report.invocation.config_sha256.has_value() == imported) {
    fail({&invocation, "config_sha256", {}}, must_be);
  }
  if (imported && !report.environments.empty()) {
    fail({&root, "environments", {}}, "empty, as results are imported");
  }
  if (report.sources.empty() == imported) {
    fail({&root, "sources", {}}, imported ? "a list of files" : "empty, as the kind is another");
  }
  for (size_t i = 0; i < report.arms.size(); ++i) {
    require_arm_alone(report.arms[i], imported, Place{&arms, {}, i});
  }
}

Json kind_alone_schema() {
  const auto at_most = [](int items) { return Json{{"maxItems", items}}; };
  const auto of_type = [](const char* type) { return Json{{"type", type}}; };
  const auto of_object = [](Json properties) {
    return Json{{"properties", std::move(properties)}};
  };
  const Json is_imported = {{"const", "imported"}};
  const Json some = {{"minItems", 1}};
  const Json there = of_object(
      {{"invocation",
        of_object({{"config", of_type("object")}, {"config_sha256", of_type("string")}})},
       {"sources", at_most(0)},
       {"arms",
        {{"items", of_object({{"kind", {{"not", is_imported}}}, {"imported", at_most(0)}})}}}});
  Json arm = of_object({{"kind", is_imported}, {"imported", some}, {"runs", at_most(0)}});
  arm["required"] = {"imported"};
  Json imported = of_object(
      {{"invocation", of_object({{"config", of_type("null")}, {"config_sha256", of_type("null")}})},
       {"environments", at_most(0)},
       {"sources", some},
       {"arms", {{"items", arm}}}});
  imported["required"] = {"sources"};
  return {{"if", of_object({{"kind", is_imported}})}, {"then", imported}, {"else", there}};
}

}  // namespace nearmetal::json
