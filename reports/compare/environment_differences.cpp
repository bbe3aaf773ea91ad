#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "reports/compare/compare.h"
#include "reports/json/json.h"

namespace nearmetal {
namespace {

// What is another on every machine, of every run or launch, and says nothing of its speed.
bool is_identity(const std::string& name) {
  constexpr std::array ends = {"host_name", "boot_id",         "/uuid", "/pci_id",
                               "/serial",   "/link_generation"};  // which an idle link lowers
  const auto is_end = [&](const char* end) { return name.ends_with(end); };
  return std::ranges::any_of(ends, is_end) ||
         std::ranges::any_of(variables_of_a_launch, [&](const char* variable) {
           return name == std::string("variables/") + variable;
         });
}

constexpr const char* absent = "(none)";  // a value may be the word none

// By all signs together where the report has that conclusion, else by the CPU's alone.
std::optional<bool> is_virtual(const Environment& environment) {
  const Maybe<MachineKind>& machine = environment.virtualisation.machine;
  return machine ? *machine == MachineKind::vm : environment.hypervisor_cpu_flag.value;
}

bool any_is(const std::vector<Environment>& side, std::optional<bool> wanted) {
  return std::ranges::any_of(
      side, [&](const Environment& environment) { return is_virtual(environment) == wanted; });
}

bool any_says(const std::vector<Environment>& side, MachineKind claim) {
  return std::ranges::any_of(
      side, [&](const Environment& environment) { return environment.claim == claim; });
}

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

std::vector<Warning> doubts_of_claim(const std::vector<Environment>& bare,
                                     const std::vector<Environment>& vm) {
  std::vector<Warning> doubts;
  if (any_is(bare, true)) {
    doubts.push_back({"claim_bare", "the side given as bare metal shows a hypervisor"});
  }
  if (any_says(bare, MachineKind::vm)) {
    doubts.push_back({"claim_bare", "the side given as bare metal was run with --environment vm"});
  }
  if (any_is(vm, false)) {
    doubts.push_back({"claim_vm", "the side given as a VM shows no hypervisor"});
  }
  if (any_says(vm, MachineKind::bare_metal)) {
    doubts.push_back({"claim_vm", "the side given as a VM was run with --environment bare-metal"});
  }
  if (any_is(bare, std::nullopt) || any_is(vm, std::nullopt)) {
    doubts.push_back({"claim_unconfirmed", "whether there is a hypervisor is not known for all"});
  }
  return doubts;
}

std::vector<Warning> doubts_of_claim(const RunSet& bare, const RunSet& vm) {
  std::vector<Warning> doubts = doubts_of_claim(bare.environments, vm.environments);
  if (std::ranges::none_of(vm.arms, [](const RunArm& arm) { return is_imported(arm); })) {
    return doubts;
  }
  doubts.push_back(
      {"other_machines",
       "which side is bare metal and which a VM is as it was published, and they are different "
       "machines: the difference is theirs in all, not that of a hypervisor alone"});
  return doubts;
}

}  // namespace nearmetal
