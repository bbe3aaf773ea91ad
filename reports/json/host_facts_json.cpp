#include "reports/json/host_facts_json.h"

#include "models/errors.h"
#include "reports/json/json_reader.h"

namespace nearmetal {
namespace {

constexpr size_t largest_text = 64 << 10;
constexpr size_t most_facts = 256;
constexpr size_t longest_value = 1000;

}  // namespace

std::map<std::string, std::string> host_facts_from_json(const std::string& text) {
  if (text.size() > largest_text) throw InvalidReport("must have at most 64 KiB");
  json::Document document;
  try {
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
