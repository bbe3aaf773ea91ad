#include "reports/json/json.h"

#include <algorithm>
#include <stdexcept>

#include "models/errors.h"
#include "reports/document/settings.h"
#include "reports/files/sha256.h"
#include "reports/json/consistency.h"
#include "reports/json/fields.h"
#include "reports/json/imported_json.h"
#include "reports/json/json_reader.h"
#include "reports/json/json_writer.h"
#include "reports/json/schema_writer.h"

namespace nearmetal {
namespace {

using json::Json;

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
    return json::Document::parse(read);
  } catch (const json::Document::exception& error) {
    throw InvalidReport("not JSON: " + parser_reason(error.what()));
  }
}

Report report_of(const json::Document& document) {
  Report report;
  json::Reader reader(document, json::Place{});
  json::fields(reader, report);
  if (report.arms.empty()) throw InvalidReport("/arms must hold at least one arm");
  json::require_kind_alone(report);
  return report;
}

constexpr size_t largest_text = 64 << 10;
constexpr size_t most_facts = 256;
constexpr size_t longest_value = 1000;

}  // namespace

std::string report_schema() {
  Json schema = json::SchemaWriter::document(Report{}, "Report of nearmetal");
  schema["properties"]["arms"]["minItems"] = 1;
  schema.update(json::kind_alone_schema());
  return json::schema_text(schema);
}

std::string to_json(const Report& report) { return json::lines_of(report); }

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

Report consistent_report_from_json(std::string text) {
  const json::Document document = parsed_document(std::move(text));
  Report report = report_of(document);
  const json::Document& config = document.at("invocation").at("config");
  try {
    require_consistent(report, [&](const std::string& name) { return config.contains(name); });
  } catch (const InvalidReport& error) {
    throw InvalidReport(std::string("it contradicts itself: ") + error.what());
  }
  return report;
}

std::string to_json(const RunConfig& config) { return json::line_of(config); }

std::string to_json(const GridPoint& point) { return json::line_of(point); }

GridPoint grid_point_from_json(const std::string& text) { return json::parsed<GridPoint>(text); }

std::string config_sha256(const RunConfig& config,
                          const std::function<bool(const std::string& name)>& counts) {
  Json settings = json::Writer::json_of(config);
  for (const Setting& setting : settings_of_run()) {
    if (setting.decides == Decides::display || !counts(setting.name)) settings.erase(setting.name);
  }
  return sha256(json::line_of(settings));
}

std::string kernel_choices_sha256(const std::vector<KernelChoice>& plans) {
  std::vector<std::string> choices;
  for (const KernelChoice& plan : plans)
    choices.push_back(plan.key + '\0' + plan.implementation + '\0');
  std::ranges::sort(choices);
  std::string text;
  for (const std::string& choice : choices) text += choice;
  return sha256(text);
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

std::vector<std::string> config_names() {
  std::vector<std::string> names;
  for (const Setting& setting : settings_of_run()) {
    names.emplace_back(setting.name);
  }
  return names;
}

std::map<std::string, std::string> host_facts_from_json(const std::string& text) {
  if (text.size() > largest_text) throw InvalidReport("must have at most 64 KiB");
  json::Document document;
  try {
    require_within_limits(text);
    document = json::Document::parse(text);
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
