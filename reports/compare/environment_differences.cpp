#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "reports/compare/compare.h"
#include "reports/json/json.h"

namespace nearmetal {
namespace {

// Whether a fact is another on every machine, of every run or launch, and says nothing of its
// speed.
bool is_identity(const std::string& name) {
  constexpr std::array ends = {"host_name", "boot_id", "machine_id", "/uuid",
                               "/pci_id",   "/serial", "/gid"};
  const bool is_idle_link = name.starts_with("gpus/") && name.ends_with("/link_generation");
  const auto is_end = [&](const char* end) { return name.ends_with(end); };
  return is_idle_link || std::ranges::any_of(ends, is_end) ||
         std::ranges::any_of(variables_of_a_launch, [&](const char* variable) {
           return name == std::string("variables/") + variable;
         });
}

constexpr const char* absent = "(none)";  // a value may be the word none

}  // namespace

std::vector<std::pair<std::string, std::string>> joined_facts(
    const std::vector<Environment>& side) {
  std::vector<std::pair<std::string, std::string>> facts;
  std::map<std::string, size_t> places;
  std::map<std::string, std::set<std::string>> values;
  for (const Environment& environment : side) {
    for (const auto& [name, value] : environment_facts(environment)) {
      const auto [place, is_new] = places.emplace(name, facts.size());
      if (is_new) facts.emplace_back(name, "");
      if (!values[name].insert(value).second) continue;
      std::string& text = facts[place->second].second;
      text += (values[name].size() > 1 ? ", " : "") + value;
    }
  }
  return facts;
}

std::vector<EnvironmentDifference> environment_differences(const std::vector<Environment>& base,
                                                           const std::vector<Environment>& other) {
  if (base == other) return {};
  const auto base_facts = joined_facts(base);
  const auto other_facts = joined_facts(other);
  const std::map<std::string, std::string> in_base(base_facts.begin(), base_facts.end());
  const std::map<std::string, std::string> in_other(other_facts.begin(), other_facts.end());
  std::vector<EnvironmentDifference> differences;
  for (const auto& [name, value] : base_facts) {
    const auto there = in_other.find(name);
    const bool missing = there == in_other.end();
    if (is_identity(name) || (!missing && there->second == value)) continue;
    differences.push_back({name, value, missing ? absent : there->second});
  }
  for (const auto& [name, value] : other_facts) {
    if (is_identity(name) || in_base.contains(name)) continue;
    differences.push_back({name, absent, value});
  }
  return differences;
}

}  // namespace nearmetal
