#include <algorithm>
#include <array>
#include <functional>

#include "reports/json/fields.h"
#include "reports/json/json.h"
#include "reports/json/json_writer.h"

namespace nearmetal {
namespace {

using json::Json;
using Change = std::function<std::string(const std::string& text)>;

// By the names of their fields. The texts of all others are names that this program gives.
constexpr std::array free_texts = {"argv",    "variables",     "host_facts", "kernel_options",
                                   "unknown", "not_monitored", "failure",    "unsupported",
                                   "text",    "seen",          "profiles",   "device_reason",
                                   "host",    "why",           "subject"};

void change_all(Json& part, const Change& change) {
  if (part.is_string()) part = change(part.get<std::string>());
  if (!part.is_structured()) return;
  for (Json& below : part) change_all(below, change);
}

void change_free(Json& part, const Change& change) {
  if (!part.is_structured()) return;
  const bool has_names = part.is_object();
  for (const auto& [name, below] : part.items()) {
    const bool is_free = has_names && std::ranges::find(free_texts, name) != free_texts.end();
    if (is_free) {
      change_all(below, change);
    } else {
      change_free(below, change);
    }
  }
}

}  // namespace

void change_free_texts(Report& report, const Change& change) {
  Json document = json::Writer::json_of(report);
  change_free(document, change);
  report = report_from_json(json::line_of(document));
}

}  // namespace nearmetal
