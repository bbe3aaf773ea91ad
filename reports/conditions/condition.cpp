#include "reports/conditions/condition.h"

#include <set>
#include <stdexcept>

#include "base/text.h"

namespace nearmetal {
namespace {

// Advice that is the same for several kinds is given once.
std::string advice_for_all(const Advice& advice) {
  if (advice.kvm == advice.esxi && advice.kvm == advice.bare_metal) return advice.kvm;
  const std::string bare_metal = "; on bare metal: " + advice.bare_metal;
  if (advice.kvm == advice.esxi) return "in a VM: " + advice.kvm + bare_metal;
  return "with KVM: " + advice.kvm + "; with ESXi: " + advice.esxi + bare_metal;
}

std::string advice_outside(const Environment& machine, const Advice& advice) {
  if (advice.esxi.empty() && advice.bare_metal.empty()) return advice.kvm;
  if (is_bare_metal(machine)) return advice.bare_metal;
  if (!is_vm(machine)) return advice_for_all(advice);
  return machine.virtualisation.hypervisor.value == "vmware" ? advice.esxi : advice.kvm;
}

std::optional<double> least_on(const ExplainedSide& side, const Number& number) {
  std::optional<double> least;
  for (const Environment* environment : side.environments) {
    const std::optional<double> found = number(*environment);
    if (found) least = std::min(least.value_or(*found), *found);
  }
  return least;
}

bool any_of(const ExplainedSide& side, bool (*is_so)(const Rank&)) {
  return std::ranges::any_of(
      side.runs, [&](const Run* run) { return std::ranges::any_of(run->ranks, is_so); });
}

bool any_of(const ExplainedSide& side, bool (*is_so)(const Environment&)) {
  return std::ranges::any_of(side.environments,
                             [&](const Environment* machine) { return is_so(*machine); });
}

template <class T>
Between if_new(const std::string& what, bool (*is_so)(const T&)) {
  return [=](const ExplainedSide& base, const ExplainedSide& next) -> Seen {
    if (any_of(base, is_so) || !any_of(next, is_so)) return {};
    return what;
  };
}

// The finding on the first machine that shows it.
std::optional<Finding> found_on(const Condition& condition, const ExplainedSide& side) {
  for (const Environment* machine : side.environments) {
    const Signs signs = signs_of(condition, *machine);
    if (!signs.empty()) return finding_of(condition, *machine, signs.front());
  }
  return std::nullopt;
}

}  // namespace

Signs signs_naming(const std::vector<std::string>& names, const std::string& before,
                   const std::string& after) {
  if (names.empty()) return {};
  return {{before + shortened(joined(names)) + after}};
}

Advice on_host(const std::string& text) {
  return {"on the host: " + text, "on the host: " + text, text};
}

Condition of_machine(const char* code, const Here& here, const char* why, const Advice& advice,
                     Urgency severity) {
  return {{code}, nothing, severity, here, {}, why, advice};
}

Condition of_sides(const char* code, const Slowed& slowed, const Between& between,
                   const Advice& advice) {
  return {{code}, slowed, Urgency::warning, {}, between, "", advice};
}

Condition of_both(const Codes& codes, const Slowed& slowed, const Here& here,
                  const Between& between, const char* why, const Advice& advice, Urgency severity) {
  return {codes, slowed, severity, here, between, why, advice};
}

const Condition& condition_of(const Conditions& conditions, const std::string& code) {
  const auto code_of = [](const Condition& condition) { return condition.codes.doctor; };
  if (const Condition* found = find_in(conditions, code, code_of)) return *found;
  throw std::logic_error("no condition " + code);
}

std::string advice_for(const Environment& machine, const Advice& advice) {
  const Maybe<std::string>& container = machine.virtualisation.container;
  if (advice.container.empty() || container.value == "none") {
    return advice_outside(machine, advice);
  }
  if (container) return advice.container;
  return advice_outside(machine, advice) + "; in a container: " + advice.container;
}

Advice advice_on_nvml(int status) {
  const std::string reload =
      "restart the machine after an update of the driver, or reload the module";
  switch (status) {
    case nvml_no_permission:
      return {"let this user open /dev/nvidia* (group of the files; DeviceAllow= of a service)"};
    case nvml_driver_not_loaded:
      return {"load it (modprobe nvidia); where that fails, dmesg says why"};
    case nvml_gpu_is_lost:
      return {
          "look for Xid 79 in `dmesg`, reset the GPU or restart the machine; if it stays lost, "
          "look at its power and its slot"};
    case nvml_versions_differ:
      return {reload, reload, reload, "on the host: " + reload + "; then start the container anew"};
    case nvml_unknown_error: {
      const std::string dmesg = "look for lines of NVRM and Xid in `dmesg`";
      return {dmesg, dmesg, dmesg,
              "start the container anew: `systemctl daemon-reload` on its host takes devices away "
              "from containers that have them by the NVIDIA hook alone (name them by --device or "
              "CDI)"};
    }
    default:
      return {
          "install libnvidia-ml of the driver's version; in a container: "
          "NVIDIA_DRIVER_CAPABILITIES=compute,utility"};
  }
}

Signs signs_of(const Condition& condition, const Environment& machine) {
  return condition.here ? condition.here(machine) : Signs{};
}

Finding finding_of(const Condition& condition, const Environment& machine, const Sign& sign) {
  std::string fix = sign.fix.value_or(advice_for(machine, condition.advice));
  for (const auto& [word, name] : sign.names) fix = replaced(fix, word, name);
  return {sign.severity.value_or(condition.severity), condition.codes.doctor, sign.seen,
          sign.why.value_or(condition.why), fix};
}

std::vector<Finding> findings_of(const Conditions& conditions, const Environment& machine) {
  std::vector<Finding> findings;
  for (const Condition& condition : conditions) {
    for (const Sign& sign : signs_of(condition, machine)) {
      findings.push_back(finding_of(condition, machine, sign));
    }
  }
  return findings;
}

std::optional<Finding> found_between(const Condition& condition, const ExplainedSide& base,
                                     const ExplainedSide& next) {
  if (!condition.between) {
    return found_on(condition, base) ? std::nullopt : found_on(condition, next);
  }
  const Seen seen = condition.between(base, next);
  if (!seen) return std::nullopt;
  const Environment unknown;
  return finding_of(condition, next.environments.empty() ? unknown : *next.environments.front(),
                    {*seen});
}

std::string three_digits(double number) { return significant(number, 3); }

Between less(const std::string& what, const Number& number, std::string (*text)(double),
             std::optional<double> small) {
  return [=](const ExplainedSide& base, const ExplainedSide& next) -> Seen {
    const std::optional<double> there = least_on(base, number), here = least_on(next, number);
    if (!there || !here || *here >= *there || *here >= small.value_or(*there)) return {};
    return what + " " + text(*here) + " instead of " + text(*there);
  };
}

Between other(const std::string& what, Seen (*fact)(const Environment&)) {
  const auto texts_of = [fact](const ExplainedSide& side) {
    std::set<std::string> texts;
    for (const Environment* environment : side.environments) {
      if (const Seen text = fact(*environment)) texts.insert(*text);
    }
    return std::vector<std::string>(texts.begin(), texts.end());
  };
  return [=](const ExplainedSide& base, const ExplainedSide& next) -> Seen {
    const auto there = texts_of(base), here = texts_of(next);
    if (there.empty() || here.empty() || there == here) return {};
    return what + " " + joined(here) + " instead of " + joined(there);
  };
}

Between of_ranks(const std::string& what, bool (*is_so)(const Rank&)) {
  return if_new(what, is_so);
}
Between of_machines(const std::string& what, bool (*is_so)(const Environment&)) {
  return if_new(what, is_so);
}

}  // namespace nearmetal
