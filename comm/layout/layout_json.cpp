#include "comm/layout/layout_json.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "models/errors.h"
#include "reports/document/settings.h"
#include "reports/json/json_reader.h"
#include "reports/json/json_writer.h"
#include "reports/json/report_files.h"
#include "reports/json/schema_writer.h"

namespace nearmetal {

namespace json {
void fields(Archive& field, LayoutFile& file);  // layout_fields.cpp
}

namespace {

using ParsedJson = nlohmann::json;

constexpr size_t largest_bytes = size_t{1} << 20;
constexpr size_t deepest = 16;

// Follows the parser from value to value: at any time, the levels from the root to where it is.
class Watch {
 public:
  bool operator()(int, ParsedJson::parse_event_t event, const ParsedJson& parsed) {
    using Event = ParsedJson::parse_event_t;
    if (event == Event::key) {
      enter_member(parsed.get_ref<const std::string&>());
    } else if (event == Event::object_end || event == Event::array_end) {
      levels_.pop_back();
    } else {
      if (!levels_.empty() && levels_.back().element) ++*levels_.back().element;
      if (event != Event::value) enter_level(event == Event::array_start);
    }
    return true;
  }

 private:
  struct Level {
    std::optional<int64_t> element;  // of a list: the latest
    std::string key;                 // of an object: the latest
    std::set<std::string> keys;
  };

  void enter_member(const std::string& key) {
    Level& level = levels_.back();
    level.key = key;
    if (!level.keys.insert(key).second) throw std::invalid_argument(pointer() + " is there twice");
  }
  void enter_level(bool list) {
    if (levels_.size() == deepest) throw std::invalid_argument(pointer() + " is nested too deeply");
    levels_.emplace_back();
    if (list) levels_.back().element = -1;
  }

  std::string pointer() const {
    ParsedJson::json_pointer pointer;
    for (const Level& level : levels_) {
      if (level.element) {
        pointer /= static_cast<size_t>(*level.element);
      } else {
        pointer /= level.key;
      }
    }
    return pointer.to_string();
  }

  std::vector<Level> levels_;
};

using json::Json;

// The type that a layout file writes for a setting: as a number, or as the text that its option
// takes.
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

// The properties of a workload of all jobs of a layout, or of one.
Json workload_properties(bool of_one_job) {
  Json properties = Json::object();
  const RunConfig config;
  visit_settings(
      [&](const Setting& setting, const auto& value) {
        if ((setting.commands & in_sweep) == 0) return;
        if (of_one_job && holds_for_all_jobs(setting)) return;
        properties[layout_name_of(setting)] = {{"description", setting.help},
                                               {"type", type_of(value)}};
      },
      config);
  properties[global_batch] = {
      {"description",
       "Images per step of all ranks of a job, which share them evenly; instead of batch"},
      {"type", type_of(int64_t{})}};
  return properties;
}

Json grid_properties() {
  Json properties = workload_properties(false);
  for (auto& [name, property] : properties.items()) {
    property = {{"description", property["description"]},
                {"type", "array"},
                {"items", {{"type", property["type"]}}},
                {"minItems", 1},
                {"uniqueItems", true}};
  }
  return properties;
}

// JSON as people write it, within limits: comments are allowed, a key given twice is not.
ParsedJson parse_layout_document(std::string_view text) {
  if (text.size() > largest_bytes) throw std::invalid_argument("it is larger than 1 MiB");
  try {
    Watch watch;
    const ParsedJson::parser_callback_t follow = [&](int depth, ParsedJson::parse_event_t event,
                                                     ParsedJson& parsed) {
      return watch(depth, event, parsed);
    };
    return ParsedJson::parse(text, follow, true, true);
  } catch (const ParsedJson::exception& error) {
    throw std::invalid_argument("not JSON: " + parser_reason(error.what()));
  }
}

}  // namespace

std::string text_of_file(const std::filesystem::path& path) {
  if (path == "-") {
    static const std::string input = standard_input();  // doctor reads it twice
    return input;
  }
  std::error_code ignored;
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path, ignored)) {
    throw std::invalid_argument("it cannot be read: " + why_unreadable(path));
  }
  std::string text(largest_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(file.gcount());
  return text;
}

LayoutFile layout_from_json(std::string_view text) {
  const json::Document document = parse_layout_document(text);
  LayoutFile file;
  try {
    json::Reader reader(document, json::Place{}, json::Tolerance::strict);
    json::fields(reader, file);
    reader.require_all_known();
  } catch (const InvalidReport& error) {  // what readers throw
    throw std::invalid_argument(error.what());
  }
  if (file.layouts.empty()) throw std::invalid_argument("/layouts: at least one is needed");
  for (size_t i = 0; i < file.layouts.size(); ++i) {
    file.layouts[i].source = "/layouts/" + std::to_string(i);
  }
  check(file);
  return file;
}

LayoutFile read_layout(const std::filesystem::path& path) {
  try {
    return layout_from_json(text_of_file(path));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(path.string() + ": " + error.what());
  }
}

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
  types["workload"]["properties"] = workload_properties(false);
  types["job_workload"]["properties"].update(workload_properties(true));
  types["grid"]["properties"] = grid_properties();
  return json::schema_text(schema);
}

}  // namespace nearmetal
