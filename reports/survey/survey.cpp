#include "reports/survey/survey.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "reports/compare/same_bits.h"
#include "reports/document/metric.h"
#include "reports/document/steps.h"
#include "reports/statistics/outliers.h"
#include "reports/statistics/statistics.h"
#include "reports/survey/survey_causes.h"

namespace nearmetal {
namespace {

using FamilyKey = std::pair<SurveyPart, std::string>;
// Logarithms, by repeat.
using Members = std::map<SurveyUnits, std::vector<double>>;
using FleetLogs = std::map<FamilyKey, Members>;

struct TwoLooks {
  FleetLogs first, fresh;
};

bool trains_alone(const Report& report, const Arm& arm) {
  return config_of(report, arm).update == Update::independent;
}

// A job of two: where it is on CPUs, its hosts are what it links.
SurveyUnits link_between(const Rank& one, const Rank& other) {
  SurveyUnits units = {unit_of(one), unit_of(other)};
  for (SurveyUnit& unit : units) unit.rank.reset();
  std::ranges::sort(units);
  return units;
}

std::string way_between(const Report& report, const SurveyUnits& units) {
  if (units[0].environment != units[1].environment) return "network";
  const std::vector<Gpu>& gpus = report.environments[units[0].environment].gpus;
  const std::string other = gpus.at(*units[1].gpu).pci_id.value.value_or("");
  const GpuPeer* peer = find_in(gpus.at(*units[0].gpu).peers, other, &GpuPeer::pci_id);
  if (peer == nullptr || !peer->nvlink) return "inside a host";
  return *peer->nvlink ? "NVLink" : "PCIe";
}

std::string kind_of_link(const Report& report, const SurveyUnits& units) {
  std::set<std::string> kinds;
  for (const SurveyUnit& unit : units) kinds.insert(kind_of(report, unit));
  return joined({kinds.begin(), kinds.end()}, " and ") + ", " + way_between(report, units);
}

void add_link(const Report& report, const Rank& one, const Rank& other, double bytes_per_second,
              FleetLogs& look) {
  const SurveyUnits units = link_between(one, other);
  if (units[0] == units[1]) return;  // two ranks on CPUs of one host
  look[{SurveyPart::link, kind_of_link(report, units)}][units].push_back(
      std::log(bytes_per_second));
}

void add_links(const Report& report, const Run& run, FleetLogs& look) {
  if (run.jobs.empty() && run.ranks.size() == 2) {
    const Maybe<double> rate = bus_bandwidth_metric().value_of(run);
    if (rate) add_link(report, run.ranks[0], run.ranks[1], *rate, look);
  }
  size_t first = 0;
  for (const ConcurrentJob& job : run.jobs) {
    if (job.ranks == 2 && job.bus_bandwidth_bytes_per_second) {
      add_link(report, run.ranks.at(first), run.ranks.at(first + 1),
               *job.bus_bandwidth_bytes_per_second, look);
    }
    first += job.ranks;
  }
}

void add_devices(const Report& report, const RunConfig& config, const Run& run, FleetLogs& look) {
  for (size_t i = 0; i < run.ranks.size(); ++i) {
    const Rank& rank = run.ranks[i];
    if (!rank.step_time) continue;
    // The mean tells of what stops a device now and then.
    const std::span<const double> steps = window_steps(run, i);
    const double seconds = steps.empty() ? rank.step_time->median_seconds : mean(steps);
    const SurveyUnit unit = unit_of(rank);
    look[{SurveyPart::device, kind_of(report, unit)}][{unit}].push_back(
        std::log(static_cast<double>(step_samples(config)) / seconds));
  }
}

TwoLooks looks_of(const Report& report, int64_t repeats) {
  TwoLooks looks;
  const Arm* devices = nullptr;  // later arms of ranks for themselves are there for their bits
  for (const Arm& arm : report.arms) {
    if (devices == nullptr && trains_alone(report, arm)) devices = &arm;
    for (size_t i = 0; i < arm.runs.size(); ++i) {
      const Run& run = arm.runs[i];
      if (run.status != Status::complete) continue;
      FleetLogs& look = std::cmp_less(i, repeats) ? looks.first : looks.fresh;
      if (&arm == devices) add_devices(report, config_of(report, arm), run, look);
      if (!trains_alone(report, arm)) add_links(report, run, look);
    }
  }
  return looks;
}

using Means = std::map<SurveyUnits, double>;

constexpr size_t fewest_parts = 3;  // of a whole that is judged by its parts

Means means_of(const Members& members) {
  Means means;
  for (const auto& [units, logs] : members) means[units] = mean(logs);
  return means;
}

std::vector<double> logs_of(const Means& means) {
  std::vector<double> logs;
  for (const auto& [units, log] : means) logs.push_back(log);
  return logs;
}

// Leaves out slow links, but those of an end most of whose links are slow: they are its fault.
Means links_of_devices(Means means) {
  const auto fleet = fleet_speed(logs_of(means), survey_error_rate);
  if (!fleet) return means;
  std::map<SurveyUnit, int64_t> links, slow;
  std::vector<SurveyUnits> suspects;
  for (const SlowUnit& suspect : fleet->suspects) {
    suspects.push_back(std::next(means.begin(), static_cast<ptrdiff_t>(suspect.unit))->first);
    for (const SurveyUnit& unit : suspects.back()) ++slow[unit];
  }
  for (const auto& [units, log] : means) {
    for (const SurveyUnit& unit : units) ++links[unit];
  }
  for (const SurveyUnits& units : suspects) {
    const bool is_of_an_end = std::ranges::any_of(
        units, [&](const SurveyUnit& unit) { return 2 * slow[unit] > links[unit]; });
    if (!is_of_an_end) means.erase(units);
  }
  return means;
}

using Parts = std::map<FamilyKey, std::map<SurveyUnits, std::vector<double>>>;

// Adds how far each part of a unit, a link of a GPU or a device of a host, lies from the centre of
// its family.
void add_parts(const Report& report, SurveyPart part, const Means& means, Parts& parts) {
  const double centre = median(logs_of(means));
  for (const auto& [units, log] : part == SurveyPart::link ? links_of_devices(means) : means) {
    for (const SurveyUnit& unit : units) {
      if (part == SurveyPart::device) {
        const SurveyUnit host{.environment = unit.environment};
        parts[{SurveyPart::host, "hosts"}][{host}].push_back(log - centre);
      } else if (unit.gpu) {
        parts[{SurveyPart::links, kind_of(report, unit)}][{unit}].push_back(log - centre);
      }
    }
  }
}

std::map<FamilyKey, Means> families_of(const Report& report, const FleetLogs& look) {
  std::map<FamilyKey, Means> families;
  Parts parts;
  for (const auto& [key, members] : look) {
    const Means& means = families[key] = means_of(members);
    add_parts(report, key.first, means, parts);
  }
  for (const auto& [key, wholes] : parts) {
    Means means;
    for (const auto& [unit, differences] : wholes) {
      if (differences.size() < fewest_parts) continue;
      // One slow GPU does not make a host slow. Two GPUs share a link, which their medians may
      // both be: equal values would make others stand out.
      means[unit] = key.first == SurveyPart::host ? median(differences) : mean(differences);
    }
    if (means.size() > 1) families[key] = std::move(means);
  }
  return families;
}

// None where it knows less than that many members themselves tell, or is of other work.
std::optional<UnitSpread> known_spread(const Report& report, const Report* baseline,
                                       const FamilyKey& key, const Survey& survey, size_t members) {
  if (baseline == nullptr || baseline->survey->repeats != survey.repeats ||
      baseline->invocation.config_sha256 != report.invocation.config_sha256) {
    return std::nullopt;
  }
  for (const SurveyFamily& family : baseline->survey->families) {
    const bool is_it = family.part == key.first && family.kind == key.second;
    if (!is_it || !family.spread) continue;
    if (*family.degrees_of_freedom + 1 < static_cast<double>(members)) continue;
    return UnitSpread{*family.spread, *family.degrees_of_freedom};
  }
  return std::nullopt;
}

SurveyFamily family_of(const FamilyKey& key, const Means& means,
                       const std::optional<FleetSpeed>& fleet,
                       const std::optional<UnitSpread>& known) {
  constexpr double power = 0.95;
  SurveyFamily family;
  std::tie(family.part, family.kind) = key;
  const double centre = fleet ? fleet->centre : median(logs_of(means));
  family.centre = std::exp(centre);
  family.by_baseline = known.has_value();
  const Unknown few{"fewer than " + std::to_string(fewest_units) + " of the kind"};
  family.spread = family.degrees_of_freedom = family.found_from = few;
  if (fleet) {
    const UnitSpread spread = known.value_or(fleet->spread);
    family.spread = spread.deviation;
    family.degrees_of_freedom = spread.degrees_of_freedom;
    family.found_from = detectable_slowness(*fleet, survey_error_rate, power, known);
  }
  for (const auto& [units, log] : means) {
    family.members.push_back({units, std::expm1(log - centre)});
  }
  std::ranges::stable_sort(family.members, {}, &SurveyMember::difference);
  return family;
}

// The fresh runs of the family decide.
void judge(const Means& fresh, const std::optional<UnitSpread>& known,
           std::vector<SurveySuspect>& suspects) {
  std::vector<double> logs;
  std::vector<size_t> places;
  for (const auto& [units, log] : fresh) {
    if (find_in(suspects, units, &SurveySuspect::units)) places.push_back(logs.size());
    logs.push_back(log);
  }
  const auto verdicts = repeated_suspects(logs, places, known);
  for (SurveySuspect& suspect : suspects) {
    suspect.difference = suspect.lower = suspect.upper = Unknown{"not looked at again"};
    const auto member = fresh.find(suspect.units);
    if (!verdicts || member == fresh.end()) continue;
    const auto place = static_cast<size_t>(std::distance(fresh.begin(), member));
    const SlowUnit* verdict = find_in(*verdicts, place, &SlowUnit::unit);
    const double tail = survey_error_rate / static_cast<double>(places.size());
    const Interval bounds = interval(verdict->difference, 1 - 2 * tail);
    suspect.difference = std::expm1(verdict->difference.value);
    suspect.lower = bounds.lower - 1;
    suspect.upper = bounds.upper - 1;
    suspect.confirmed = verdict->p < survey_error_rate;
  }
}

std::vector<SurveySuspect> suspects_of(const SurveyFamily& family, const Means& means,
                                       const FleetSpeed& fleet) {
  return transformed(fleet.suspects, [&](const SlowUnit& slow) {
    const auto member = std::next(means.begin(), static_cast<ptrdiff_t>(slow.unit));
    return SurveySuspect{.part = family.part,
                         .kind = family.kind,
                         .units = member->first,
                         .difference = {},
                         .lower = {},
                         .upper = {},
                         .causes = {}};
  });
}

bool is_left_out(const Environment& machine) { return machine.host_name == left_out_name; }

std::string unit_text(const Report& report, const SurveyUnit& unit) {
  const Environment& machine = report.environments.at(unit.environment);
  const std::string host =
      is_left_out(machine) ? "host " + std::to_string(unit.environment) : machine.host_name;
  if (!unit.gpu) return unit.rank ? "rank " + std::to_string(*unit.rank) + " of " + host : host;
  // The index is that of the report alone.
  const Maybe<std::string>& pci_id = machine.gpus.at(*unit.gpu).pci_id;
  return "GPU " + pci_id.value.value_or(std::to_string(*unit.gpu)) + " of " + host;
}

// The same text for the same GPU, or rank of a host, in reports of several days; empty where names
// were left out.
std::string identity_of(const Report& report, const SurveyUnits& units) {
  std::vector<std::string> names;
  for (const SurveyUnit& unit : units) {
    const Environment& machine = report.environments.at(unit.environment);
    const Maybe<std::string> uuid = unit.gpu ? machine.gpus.at(*unit.gpu).uuid : Unknown{};
    if (!uuid && is_left_out(machine)) return "";
    names.push_back(uuid ? *uuid : unit_text(report, unit));
  }
  std::ranges::sort(names);
  return joined(names);
}

bool is_known(const Report& base, const Report& next, const SurveySuspect& suspect) {
  const std::string identity = identity_of(next, suspect.units);
  return !identity.empty() &&
         std::ranges::any_of(base.survey->suspects, [&](const SurveySuspect& before) {
           return before.confirmed && before.part == suspect.part &&
                  identity_of(base, before.units) == identity;
         });
}

void require_identities(const Report& report) {
  std::vector<SurveyUnits> all = transformed(report.survey->suspects, &SurveySuspect::units);
  for (const SurveyFault& fault : report.survey->faults) all.push_back({fault.unit});
  for (const SurveyUnits& units : all) {
    if (!identity_of(report, units).empty()) continue;
    throw NotComparable("surveys without names of hosts and GPUs do not tell who is new");
  }
}

void add_faults(const Report& report, const Arm& arm, Survey& survey) {
  std::vector<std::vector<DigestGroup>> digests;
  const Run* shown = nullptr;
  for (const Run& run : arm.runs) {
    if (run.digests.empty() || run.status != Status::complete) continue;
    digests.push_back(run.digests);
    shown = &run;
  }
  if (shown == nullptr) return;
  for (const WrongBits& wrong : wrong_bits(digests, device_models(*shown, report.environments))) {
    survey.faults.push_back({unit_of(*find_in(shown->ranks, wrong.rank, &Rank::rank)), arm.name,
                             wrong.step, wrong.what, wrong.certain, wrong.permanent});
  }
}

}  // namespace

SurveyUnit unit_of(const Rank& rank) {
  SurveyUnit unit{.environment = rank.environment, .gpu = rank.gpu};
  if (!rank.gpu) unit.rank = rank.rank;
  return unit;
}

std::string kind_of(const Report& report, const SurveyUnit& unit) {
  const Environment& machine = report.environments.at(unit.environment);
  if (!unit.gpu) return machine.cpu_model.value.value_or("CPU");
  const Gpu& gpu = machine.gpus.at(*unit.gpu);
  return gpu.name + (gpu.mig_profile ? " " + *gpu.mig_profile : "");
}

std::string units_text(const Report& report, const SurveyUnits& units) {
  return joined(transformed(units, [&](const SurveyUnit& unit) { return unit_text(report, unit); }),
                " - ");
}

Survey survey_of(const Report& report, int64_t repeats, const Report* baseline) {
  Survey survey;
  survey.repeats = repeats;
  const TwoLooks looks = looks_of(report, repeats);
  const std::map<FamilyKey, Means> first = families_of(report, looks.first);
  std::map<FamilyKey, Means> fresh = families_of(report, looks.fresh);
  for (const auto& [key, means] : first) {
    const std::optional<UnitSpread> known =
        known_spread(report, baseline, key, survey, means.size());
    const std::optional<FleetSpeed> fleet = fleet_speed(logs_of(means), survey_error_rate, known);
    const SurveyFamily& family = survey.families.emplace_back(family_of(key, means, fleet, known));
    if (!fleet) continue;
    std::vector<SurveySuspect> suspects = suspects_of(family, means, *fleet);
    judge(fresh[key], known, suspects);
    for (SurveySuspect& suspect : suspects) {
      suspect.causes = causes_of(report, suspect, family);
      suspect.known = baseline != nullptr && is_known(*baseline, report, suspect);
    }
    append(survey.suspects, suspects);
  }
  for (const Arm& arm : report.arms) add_faults(report, arm, survey);
  return survey;
}

bool is_anybody_wrong(const Survey& survey) {
  return !survey.silent_hosts.empty() || !survey.faults.empty() ||
         std::ranges::count(survey.suspects, true, &SurveySuspect::confirmed) > 0;
}

bool was_judged(const Survey& survey) {
  return std::ranges::any_of(survey.families, [](auto& family) { return !!family.found_from; }) &&
         std::ranges::all_of(survey.suspects, [](auto& suspect) { return !!suspect.difference; });
}

Survey new_since(const Report& base, const Report& next) {
  require_identities(base);
  require_identities(next);
  Survey found = *next.survey;
  std::erase_if(found.suspects, [&](const SurveySuspect& suspect) {
    return !suspect.confirmed || is_known(base, next, suspect);
  });
  std::erase_if(found.faults, [&](const SurveyFault& fault) {
    const std::string identity = identity_of(next, {fault.unit});
    return std::ranges::any_of(base.survey->faults, [&](const SurveyFault& before) {
      return identity_of(base, {before.unit}) == identity;
    });
  });
  std::erase_if(found.silent_hosts, [&](const std::string& host) {
    return find_in(base.survey->silent_hosts, host) != nullptr;
  });
  return found;
}

}  // namespace nearmetal
