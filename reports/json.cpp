#include "reports/json.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "reports/fields.h"
#include "reports/sha256.h"

namespace nearmetal {
namespace {

using json::Json;

constexpr auto replace_bad_utf8 = Json::error_handler_t::replace;

// What a run shows and where it writes; the rest decides what is computed. The plans are left out,
// too: they have a hash of their own.
const std::set<std::string> display_settings = {"output",      "force",      "json", "quiet",
                                                "no_progress", "plan_cache", "plans"};

}  // namespace

std::string to_json(const Report& report) {
  return json::Writer::json_of(report).dump(2, ' ', false, replace_bad_utf8) + "\n";
}

Report report_from_json(const std::string& text) {
  try {
    Report report;
    const Json document = Json::parse(text);
    json::Reader reader(document, "");
    json::fields(reader, report);
    return report;
  } catch (const Json::exception& error) {
    const std::string text_of_error = error.what();  // "[json.exception...] parse error at ..."
    throw InvalidReport("not JSON: " + text_of_error.substr(text_of_error.find("] ") + 2));
  }
}

std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::error_code ignored;
  if (!file || std::filesystem::is_directory(path, ignored)) {  // a folder reads as empty
    throw InvalidReport(path.string() + " cannot be read: there is no such file, or not for you");
  }
  const std::streamoff size = file.tellg();
  if (size < 0) {  // a pipe
    file.clear();
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  std::string text(size, '\0');
  file.seekg(0);
  file.read(text.data(), size);
  text.resize(file.gcount());
  return text;
}

Report read_report(const std::filesystem::path& path) {
  const std::string text = file_text(path);
  try {
    return report_from_json(text);
  } catch (const InvalidReport& error) {
    throw InvalidReport(path.string() + " is not a valid report: " + error.what());
  }
}

std::string config_sha256(const RunConfig& config) {
  Json settings = json::Writer::json_of(config);
  for (const std::string& name : display_settings) settings.erase(name);
  return sha256(settings.dump(-1, ' ', false, replace_bad_utf8));
}

std::string plans_sha256(const std::vector<Plan>& plans) {
  std::vector<std::string> choices;
  for (const Plan& plan : plans) choices.push_back(plan.key + '\0' + plan.implementation + '\0');
  std::sort(choices.begin(), choices.end());
  std::string text;
  for (const std::string& choice : choices) text += choice;
  return sha256(text);
}

std::vector<std::pair<std::string, std::string>> environment_facts(const Environment& environment) {
  std::vector<std::pair<std::string, std::string>> facts;
  const Json flat = json::Writer::json_of(environment).flatten();  // items() refers to it
  for (const auto& [pointer, value] : flat.items()) {
    const std::string name = pointer.substr(1);
    if (name.starts_with("unknown") || name.find("/unknown") != name.npos) continue;
    if (value.is_structured()) continue;  // an empty list or object
    facts.emplace_back(name, value.is_null()     ? "unknown"
                             : value.is_string() ? value.get<std::string>()
                                                 : value.dump());
  }
  return facts;
}

std::vector<std::string> config_names() {
  std::vector<std::string> names;
  const Json defaults = json::Writer::json_of(RunConfig{});  // items() refers to it
  for (const auto& [name, value] : defaults.items()) {
    names.push_back(name);
  }
  return names;
}

}  // namespace nearmetal
