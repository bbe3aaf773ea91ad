#include "reports/json/json.h"

#include <algorithm>
#include <array>

#include "base/errors.h"
#include "base/sha256.h"
#include "base/text.h"
#include "reports/document/settings.h"
#include "reports/document/steps.h"
#include "reports/json/archive.h"
#include "reports/json/consistency.h"
#include "reports/json/json_reader.h"
#include "reports/json/json_writer.h"
#include "reports/json/report_fields.h"
#include "reports/json/survey_fields.h"

namespace nearmetal {
namespace {

using json::fail;
using json::Json;
using json::Place;
using Change = std::function<std::string(const std::string& text)>;

// Reading takes 2.4 GB of memory at the very worst, of 50 million numbers in 100 MB of text; a
// report takes two to three times its size: 1.3 GB where 10000 runs of 1000 steps are in one file
// of 511 MB.
constexpr size_t largest_text_bytes = size_t{512} << 20;
constexpr int64_t deepest = 64;
constexpr int64_t most_values = 50'000'000;
constexpr int64_t weight_of_container = 8;  // in values, of its memory
constexpr int64_t weight_of_text = 2;       // of keys, too: beside the value that it is, or names

json::Document parsed_document(std::string&& text) {
  const std::string read = std::move(text);  // gone before a report is made of the document
  require_within_limits(read);
  try {
    return json::document_of(read);
  } catch (const json::Document::exception& error) {
    throw InvalidReport("not JSON: " + parser_reason(error.what()));
  }
}

// Results of others and forecasts stand alone: without settings, environments and runs of this
// program, with what they rest on; and other reports hold none of them.
void require_kind_alone(const Report& report) {
  const auto require = [](bool holds, const Place& parent, const char* key,
                          const std::string& must_be) {
    if (!holds) fail(Place{&parent, key, {}}, must_be);
  };
  const bool imported = report.kind == Kind::imported, predicted = report.kind == Kind::predicted;
  const bool alone = imported || predicted;
  const std::string kind = to_string(report.kind), as = ", as the kind is " + kind;
  const Place root, invocation{&root, "invocation", {}}, arms{&root, "arms", {}};
  const std::string must_be = alone ? "null" + as : "there";
  require(report.invocation.origins.empty() == alone, invocation, "config", must_be);
  require(report.invocation.config_sha256.has_value() != alone, invocation, "config_sha256",
          must_be);
  require(!alone || report.environments.empty(), root, "environments", "empty" + as);
  require(report.sources.empty() != imported, root, "sources",
          imported ? "a list of files" : "empty" + as);
  require(report.forecasts.empty() != predicted, root, "forecasts",
          predicted ? "a list of what forecasts rest on" : "empty" + as);
  for (size_t i = 0; i < report.arms.size(); ++i) {
    const Arm& arm = report.arms[i];
    const Place place{&arms, {}, i};
    const bool of_runs = arm.kind == Kind::measured || arm.kind == Kind::emulated;
    require(alone ? arm.kind == report.kind : of_runs, place, "kind",
            alone ? kind + ", as that of the report" : "that of a run");
    require(arm.imported.empty() != imported, place, "imported",
            imported ? "a list of results" : "empty" + as);
    require(arm.forecast.has_value() == predicted, place, "forecast",
            predicted ? "there" + as : "null" + as);
    require(!alone || arm.runs.empty(), place, "runs", "empty" + as);
  }
}

// The same, as a part of the schema.
Json kind_alone_schema() {
  const auto at_most = [](int items) { return Json{{"maxItems", items}}; };
  const auto of_type = [](const char* type) { return Json{{"type", type}}; };
  const auto of_object = [](Json properties) {
    return Json{{"properties", std::move(properties)}};
  };
  const Json some = {{"minItems", 1}}, none = at_most(0);
  const Json kinds_of_runs = {{"enum", {"measured", "emulated"}}};
  const Json there =
      of_object({{"invocation",
                  of_object({{"config", of_type("object")}, {"config_sha256", of_type("string")}})},
                 {"sources", none},
                 {"forecasts", none},
                 {"arms",
                  {{"items", of_object({{"kind", kinds_of_runs},
                                        {"imported", none},
                                        {"forecast", of_type("null")}})}}}});
  // Of the kind, with its results in `results` of an arm and what they rest on in `basis`.
  const auto alone = [&](const char* kind, const char* results, const Json& form,
                         const char* basis) {
    Json arm = of_object({{"kind", {{"const", kind}}}, {results, form}, {"runs", none}});
    arm["required"] = {results};
    Json report =
        of_object({{"invocation",
                    of_object({{"config", of_type("null")}, {"config_sha256", of_type("null")}})},
                   {"environments", none},
                   {basis, some},
                   {"arms", {{"items", arm}}}});
    report["required"] = {basis};
    return report;
  };
  const auto is = [&](const char* kind) { return of_object({{"kind", {{"const", kind}}}}); };
  return {{"if", is("imported")},
          {"then", alone("imported", "imported", some, "sources")},
          {"else",
           {{"if", is("predicted")},
            {"then", alone("predicted", "forecast", of_type("object"), "forecasts")},
            {"else", there}}}};
}

Report report_of(const json::Document& document) {
  Report report;
  json::Reader reader(document, Place{});
  json::fields(reader, report);
  if (report.arms.empty()) throw InvalidReport("/arms must hold at least one arm");
  require_kind_alone(report);
  return report;
}

constexpr size_t largest_text = 64 << 10;
constexpr size_t most_facts = 256;
constexpr size_t longest_value = 1000;

// By the names of their fields. The texts of all others are names that this program gives.
constexpr std::array free_texts = {
    "argv",    "variables",   "host_facts", "kernel_options", "unknown",     "not_monitored",
    "failure", "unsupported", "text",       "seen",           "profiles",    "device_reason",
    "host",    "why",         "subject",    "mpi_transports", "silent_hosts"};

void change_texts(Json& part, const Change& change, bool is_free = false) {
  if (is_free && part.is_string()) part = change(part.get<std::string>());
  if (!part.is_structured()) return;
  const bool has_names = part.is_object();
  for (const auto& [name, below] : part.items()) {
    const bool named = has_names && std::ranges::find(free_texts, name) != free_texts.end();
    change_texts(below, change, is_free || named);
  }
}

}  // namespace

std::string report_schema() {
  Json schema = json::SchemaWriter::document(Report{}, "Report of nearmetal");
  schema["properties"]["arms"]["minItems"] = 1;
  schema.update(kind_alone_schema());
  return json::schema_text(schema);
}

std::string to_json(const Report& report) {
  Report readable = report;
  bin_long_lists(readable);
  return json::lines_of(readable);
}

void change_free_texts(Report& report, const Change& change) {
  bin_long_lists(report);  // so that it can be read
  Json document = json::Writer::json_of(report);
  change_texts(document, change);
  report = report_from_json(json::line_of(document));
}

void require_within_limits(std::string_view text) {
  if (text.size() > largest_text_bytes) throw InvalidReport("it is larger than 512 MiB");
  int64_t depth = 0;
  int64_t values = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
        values += weight_of_text;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '\0') {  // where parsers stop as if the text ended there
      throw InvalidReport("not JSON: it holds a NUL byte");
    } else if (c == '[' || c == '{') {
      if (++depth > deepest) throw InvalidReport("its lists and objects are nested too deeply");
      values += weight_of_container;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',') {
      ++values;
    }
  }
  if (values > most_values) throw InvalidReport("it holds too many values");
}

Report report_from_json(std::string text) { return report_of(parsed_document(std::move(text))); }

Report consistent_report_from_json(std::string text, const std::string& key) {
  const json::Document whole = parsed_document(std::move(text));
  const json::Document& document = key.empty() ? whole : whole.at(key);
  Report report = report_of(document);
  const json::Document& config = document.at("invocation").at("config");
  try {
    require_consistent(report, [&](const std::string& name) { return config.contains(name); });
    if (report.survey) require_consistent_survey(report);
  } catch (const InvalidReport& error) {
    throw InvalidReport(std::string("it contradicts itself: ") + error.what());
  }
  return report;
}

std::string config_sha256(const RunConfig& config,
                          const std::function<bool(const std::string& name)>& counts) {
  Json settings = json::Writer::json_of(config);
  for (const Setting& setting : settings_of_run()) {
    if (setting.decides == Decides::display || !counts(setting.name)) settings.erase(setting.name);
  }
  return sha256(json::line_of(settings));
}

std::string kernel_choices_sha256(const std::vector<KernelChoice>& plans) {
  std::vector<std::string> choices = transformed(
      plans, [](const KernelChoice& plan) { return plan.key + '\0' + plan.implementation + '\0'; });
  std::ranges::sort(choices);
  return sha256(joined(choices, ""));
}

std::vector<std::pair<std::string, std::string>> environment_facts(const Environment& environment) {
  std::vector<std::pair<std::string, std::string>> facts;
  const Json whole = json::Writer::json_of(environment);
  const Json flat = whole.flatten();  // items() refers to it; an empty list or object is null there
  for (const auto& [pointer, value] : flat.items()) {
    const std::string name = pointer.substr(1);
    if (name.starts_with("unknown") || name.find("/unknown") != name.npos) continue;
    if (whole.at(Json::json_pointer(pointer)).is_structured()) continue;
    facts.emplace_back(name, value.is_null()     ? "unknown"
                             : value.is_string() ? value.get<std::string>()
                                                 : value.dump());
  }
  return facts;
}

std::map<std::string, std::string> host_facts_from_json(const std::string& text) {
  if (text.size() > largest_text) throw InvalidReport("must have at most 64 KiB");
  json::Document document;
  try {
    require_within_limits(text);
    document = json::document_of(text);
  } catch (const json::Document::exception& error) {
    throw InvalidReport(std::string("is no JSON: ") + error.what());
  }
  std::map<std::string, std::string> facts;
  json::Reader(document, {}).scalars(facts);
  if (facts.size() > most_facts) throw InvalidReport("must have at most 256 entries");
  for (const auto& [name, value] : facts) {
    if (name.size() > longest_value || value.size() > longest_value) {
      throw InvalidReport("/" + name.substr(0, 40) + " must have at most 1000 characters");
    }
  }
  return facts;
}

}  // namespace nearmetal
