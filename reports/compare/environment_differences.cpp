#include "reports/compare/environment_differences.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "base/text.h"
#include "reports/json/json.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

constexpr const char* absent = "(none)";  // a value may be the word none

// What mpirun tells its processes of their launch, by the beginning of names; and the values that
// nearmetal's own call of it sets.
constexpr std::array told_by_mpirun = {"PMIX_MCA_",
                                       "OMPI_MCA_orte_",
                                       "OMPI_MCA_ess",
                                       "OMPI_MCA_pmix",
                                       "OMPI_MCA_plm",
                                       "OMPI_MCA_ras",
                                       "OMPI_MCA_initial_wdir",
                                       "OMPI_MCA_mpi_oversubscribe",
                                       "OMPI_MCA_shmem_RUNTIME_QUERY_hint",
                                       "OMPI_MCA_btl_sm_backing_directory",
                                       "OMPI_MCA_btl_vader_backing_directory",
                                       "OMPI_MCA_btl=self,vader",
                                       "OMPI_MCA_btl=self,tcp",
                                       "OMPI_MCA_pml=ob1",
                                       "OMPI_MCA_hwloc_base_binding_policy=none",
                                       "OMPI_MCA_rmaps_base_mapping_policy=slot"};

// Whether a fact is such a variable, with such a value or unset.
bool is_of_launch(const std::string& name, const std::string& value) {
  return std::ranges::any_of(told_by_mpirun, [&](const char* one) {
    const std::string told = std::string("variables/") + one;
    return (name + "=" + value).starts_with(told) ||
           (value == absent && told.starts_with(name + "="));
  });
}

// Whether a fact is another on every machine, run or launch, and says nothing of its speed.
bool is_identity(const std::string& name) {
  constexpr std::array ends = {"host_name", "boot_id", "machine_id", "/uuid",
                               "/pci_id",   "/serial", "/gid",       "storage/free_bytes"};
  const bool is_idle_link = name.starts_with("gpus/") && name.ends_with("/link_generation");
  const auto is_end = [&](const char* end) { return name.ends_with(end); };
  return is_idle_link || std::ranges::any_of(ends, is_end);
}

// By all signs together where the report has that conclusion, else by the CPU's alone.
std::optional<bool> is_virtual(const Environment& environment) {
  const Maybe<MachineKind>& machine = environment.virtualisation.machine;
  return machine ? *machine == MachineKind::vm : environment.hypervisor_cpu_flag.value;
}

// Whether it is in a container, where that is known.
std::optional<bool> is_contained(const Environment& environment) {
  return shows(MachineKind::container, environment).value;
}

enum class Slows { when_lower, when_higher, unknown };

struct Watched {
  const char* series;
  const char* words;
  const char* unit;
  double shown_per_unit;
  double least;      // difference that says something, of the larger value, or in its unit
  bool is_relative;  // `least` is
  Slows slows;
};

constexpr std::array watched = {
    Watched{"sm_clock_hertz", "SM clock", " GHz", 1e-9, .01, true, Slows::when_lower},
    Watched{"memory_clock_hertz", "memory clock", " GHz", 1e-9, .01, true, Slows::when_lower},
    Watched{"cpu_hertz", "CPU clock", " GHz", 1e-9, .01, true, Slows::when_lower},
    Watched{"cpu_steal_share", "CPU time that the hypervisor stole", " %", 100, steal_may_be, false,
            Slows::when_higher},
    Watched{busy_with_others_series, "CPUs busy with others", "", 1, others_may_use, false,
            Slows::when_higher},
    Watched{"power_watts", "power", " W", 1, .03, true, Slows::unknown},
    Watched{"temperature_celsius", "temperature", " degrees", 1, 3, false, Slows::unknown}};

// The mean over the ranks, of each run; empty where one does not know it.
std::vector<double> values_of(std::span<const Run* const> runs, const Watched& figure) {
  std::vector<double> values;
  for (const Run* run : runs) {
    if (figure.series == std::string("cpu_hertz") && run->device != Device::cpu) return {};
    std::vector<double> of_ranks;
    for (const Rank& rank : run->ranks) {
      const Maybe<double> value = monitored(rank, figure.series);
      if (!value) return {};
      of_ranks.push_back(*value);
    }
    if (of_ranks.empty()) return {};
    values.push_back(mean(of_ranks));
  }
  return values;
}

// Whether the ranges of both lie further apart than the wider is wide.
bool are_apart(const std::vector<double>& base, const std::vector<double>& next, double least) {
  const auto [low, high] = std::ranges::minmax(base);
  const auto [new_low, new_high] = std::ranges::minmax(next);
  const double gap = std::max(low - new_high, new_low - high);
  return gap > std::max({high - low, new_high - new_low, least});
}

std::string text_of(const Watched& figure, double base, double next) {
  const auto shown = [&](double value) {
    return significant(value * figure.shown_per_unit, 3) + figure.unit;
  };
  const std::string change = figure.is_relative ? " (" + signed_percent(next / base - 1) + ")" : "";
  return std::string(figure.words) + " " + shown(next) + " instead of " + shown(base) + change;
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
  const auto other_facts = joined_facts(other);
  std::map<std::string, std::string> left(other_facts.begin(), other_facts.end());
  std::vector<EnvironmentDifference> differences;
  for (const auto& [name, value] : joined_facts(base)) {
    const auto there = left.extract(name);
    if (there && there.mapped() == value) continue;
    differences.push_back({name, value, there ? there.mapped() : absent});
  }
  for (const auto& [name, value] : other_facts) {
    if (left.contains(name)) differences.push_back({name, absent, value});
  }
  std::erase_if(differences, [](const EnvironmentDifference& found) {
    return is_identity(found.name) ||
           (is_of_launch(found.name, found.base) && is_of_launch(found.name, found.other));
  });
  return differences;
}

std::string kinds_text(const RunSet& set) {
  std::vector<std::string> kinds;
  for (size_t i = 0; i < names_of(MachineKind{}).size() && !set.environments.empty(); ++i) {
    const auto kind = static_cast<MachineKind>(i);
    const bool all = std::ranges::all_of(set.environments, [&](const Environment& environment) {
      return shows(kind, environment).value == true;
    });
    if (all) kinds.emplace_back(to_string(kind));
  }
  return joined(kinds);
}

bool shows_hypervisor(const RunSet& set) {
  return std::ranges::count(set.environments, std::optional(true), is_virtual) > 0;
}

std::vector<Warning> doubts_of_claim(const RunSet& bare, const RunSet& next, ComparisonForm form) {
  const bool vm = form == ComparisonForm::vm;
  const std::string what = vm ? "hypervisor" : "container", name = vm ? "VM" : "container";
  const char* const code = vm ? "claim_vm" : "claim_container";
  const auto is_so = vm ? is_virtual : is_contained;
  using Fact = std::optional<bool>;
  const auto any = [](const RunSet& side, const auto& fact, const auto& wanted) {
    return std::ranges::find(side.environments, wanted, fact) != side.environments.end();
  };
  const auto any_says = [&](const RunSet& side, MachineKind claim) {
    return any(side, &Environment::claim, std::optional(claim));
  };
  const bool bare_is_virtual = shows_hypervisor(bare);
  const std::string bare_side = "the side given as bare metal ";
  const std::string next_side = "the side given as a " + name;
  std::vector<Warning> doubts;
  const auto doubt = [&](bool holds, const Warning& why) {
    if (holds) doubts.push_back(why);
  };
  doubt(bare_is_virtual, {"claim_bare", bare_side + "shows a hypervisor"});
  doubt(any_says(bare, MachineKind::vm),
        {"claim_bare", bare_side + "was run with --environment vm"});
  if (!vm) {
    doubt(any(bare, is_contained, Fact(true)), {"claim_bare", bare_side + "shows a container"});
    doubt(any_says(bare, MachineKind::container),
          {"claim_bare", bare_side + "was run with --environment container"});
  }
  doubt(any(next, is_so, Fact(false)), {code, next_side + " shows no " + what});
  doubt(any_says(next, MachineKind::bare_metal),
        {code, next_side + " was run with --environment bare-metal"});
  doubt(!vm && any(next, is_virtual, Fact(true)) && !bare_is_virtual,
        {code, next_side + " shows a hypervisor, too: the difference is that of both together"});
  doubt(any(bare, is_so, Fact()) || any(next, is_so, Fact()),
        {"claim_unconfirmed", "it is not known for all hosts whether there is a " + what});
  doubt(std::ranges::any_of(next.arms, [](const RunArm& arm) { return is_imported(arm); }),
        {"other_machines", "the publisher says which side is bare metal and which a " + name +
                               ", and they are different machines: the difference is theirs as a "
                               "whole, not that of a " +
                               what + " alone"});
  return doubts;
}

std::vector<std::pair<std::string, double>> monitored_means(const Run& run) {
  std::vector<std::pair<std::string, double>> means;
  const std::array runs = {&run};
  for (const Watched& figure : watched) {
    for (const double mean : values_of(runs, figure)) means.emplace_back(figure.series, mean);
  }
  return means;
}

MonitoredDifferences monitored_differences(std::span<const Run* const> base,
                                           std::span<const Run* const> next, bool next_is_slower) {
  MonitoredDifferences found;
  for (const Watched& figure : watched) {
    const std::vector<double> of_base = values_of(base, figure), of_next = values_of(next, figure);
    if (of_base.empty() || of_next.empty()) continue;
    const double a = mean(of_base), b = mean(of_next);
    const double least = figure.is_relative ? figure.least * std::max(a, b) : figure.least;
    if (!are_apart(of_base, of_next, least)) continue;
    const Slows change = b < a ? Slows::when_lower : Slows::when_higher;
    const bool fits = figure.slows != Slows::unknown && (figure.slows == change) == next_is_slower;
    (fits ? found.causes : found.others).push_back(text_of(figure, a, b));
  }
  return found;
}

}  // namespace nearmetal
