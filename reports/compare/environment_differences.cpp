#include "reports/compare/environment_differences.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

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

// Whether it is, by all signs together where the report has that conclusion, else by the CPU's
// alone.
std::optional<bool> is_virtual(const Environment& environment) {
  const Maybe<MachineKind>& machine = environment.virtualisation.machine;
  return machine ? *machine == MachineKind::vm : environment.hypervisor_cpu_flag.value;
}

bool any_is(const std::vector<Environment>& side, std::optional<bool> wanted) {
  return std::ranges::any_of(
      side, [&](const Environment& environment) { return is_virtual(environment) == wanted; });
}

// Whether one of them is in a container, or outside of any, or it is not known.
bool any_contained(const std::vector<Environment>& side, std::optional<bool> wanted) {
  return std::ranges::any_of(side, [&](const Environment& environment) {
    const Maybe<std::string>& container = environment.virtualisation.container;
    return (container ? std::optional(*container != "none") : std::nullopt) == wanted;
  });
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
                                     const std::vector<Environment>& next, ComparisonForm form) {
  std::vector<Warning> doubts;
  const auto doubt = [&](bool holds, const Warning& why) {
    if (holds) doubts.push_back(why);
  };
  doubt(any_is(bare, true), {"claim_bare", "the side given as bare metal shows a hypervisor"});
  doubt(any_says(bare, MachineKind::vm),
        {"claim_bare", "the side given as bare metal was run with --environment vm"});
  if (form == ComparisonForm::vm) {
    doubt(any_is(next, false), {"claim_vm", "the side given as a VM shows no hypervisor"});
    doubt(any_says(next, MachineKind::bare_metal),
          {"claim_vm", "the side given as a VM was run with --environment bare-metal"});
    doubt(any_is(bare, {}) || any_is(next, {}),
          {"claim_unconfirmed", "it is not known for all hosts whether there is a hypervisor"});
  }
  if (form == ComparisonForm::container) {
    doubt(any_contained(bare, true),
          {"claim_bare", "the side given as bare metal shows a container"});
    doubt(any_says(bare, MachineKind::container),
          {"claim_bare", "the side given as bare metal was run with --environment container"});
    doubt(any_contained(next, false),
          {"claim_container", "the side given as a container shows no container"});
    doubt(
        any_says(next, MachineKind::bare_metal),
        {"claim_container", "the side given as a container was run with --environment bare-metal"});
    doubt(any_is(next, true) && !any_is(bare, true),
          {"claim_container",
           "the side given as a container shows a hypervisor, too: the difference is that of both "
           "together"});
    doubt(any_contained(bare, {}) || any_contained(next, {}),
          {"claim_unconfirmed", "it is not known for all hosts whether there is a container"});
  }
  return doubts;
}

std::vector<Warning> doubts_of_claim(const RunSet& bare, const RunSet& next, ComparisonForm form) {
  std::vector<Warning> doubts = doubts_of_claim(bare.environments, next.environments, form);
  if (std::ranges::none_of(next.arms, [](const RunArm& arm) { return is_imported(arm); })) {
    return doubts;
  }
  const bool vm = form == ComparisonForm::vm;
  doubts.push_back(
      {"other_machines", std::string("the publisher says which side is bare metal and which a ") +
                             (vm ? "VM" : "container") +
                             ", and they are different machines: the difference is theirs as a "
                             "whole, not that of a " +
                             (vm ? "hypervisor" : "container") + " alone"});
  return doubts;
}

}  // namespace nearmetal
