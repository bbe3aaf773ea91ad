#include "reports/survey/survey_causes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"
#include "reports/attribution/known_causes.h"
#include "reports/statistics/statistics.h"
#include "reports/survey/survey.h"

namespace nearmetal {
namespace {

// The runs and machines of some units alone; the sides of a comparison point at them.
struct Evidence {
  std::vector<Run> runs;
  std::vector<Environment> environments;

  ExplainedSide side() const {
    ExplainedSide side;
    for (const Run& run : runs) side.runs.push_back(&run);
    for (const Environment& environment : environments) side.environments.push_back(&environment);
    return side;
  }
};

// A host has all ranks on it.
bool is_of(const Rank& rank, const SurveyUnit& unit) {
  const SurveyUnit own = unit_of(rank);
  return own.environment == unit.environment && (!unit.gpu || own.gpu == unit.gpu) &&
         (!unit.rank || own.rank == unit.rank);
}

// With no other rank in its runs, and no other GPU in its machine. Of ranks that trained for
// themselves: in other arms one waits for another.
Evidence evidence_of(const Report& report, const SurveyUnits& units) {
  Evidence evidence;
  for (const SurveyUnit& unit : units) {
    Environment machine = report.environments[unit.environment];
    if (unit.gpu) machine.gpus = {machine.gpus[*unit.gpu]};
    evidence.environments.push_back(std::move(machine));
  }
  const auto alone = std::ranges::find_if(report.arms, [&](const Arm& arm) {
    return config_of(report, arm).update == Update::independent;
  });
  if (alone == report.arms.end()) return evidence;
  for (const Run& run : alone->runs) {
    if (run.status != Status::complete) continue;
    Run& own = evidence.runs.emplace_back(run);
    std::erase_if(own.ranks, [&](const Rank& rank) {
      return std::ranges::none_of(units, [&](const SurveyUnit& unit) { return is_of(rank, unit); });
    });
    for (Rank& rank : own.ranks) {
      if (units[0].gpu && rank.gpu) rank.gpu = 0;
    }
    if (own.ranks.empty()) evidence.runs.pop_back();
  }
  return evidence;
}

// The mean of each series of the monitor.
std::map<std::string, double> monitored_means(const Evidence& evidence) {
  std::map<std::string, std::vector<double>> all;
  for (const Run& run : evidence.runs) {
    for (const Rank& rank : run.ranks) {
      if (!rank.monitoring) continue;
      for (const MonitoredSeries& series : rank.monitoring->series) {
        all[series.name].push_back(series.mean);
      }
    }
  }
  std::map<std::string, double> means;
  for (const auto& [name, values] : all) means[name] = mean(values);
  return means;
}

// Whether a value lies further from all others than these lie apart, and by some percent.
bool is_far(double value, const std::vector<double>& others) {
  constexpr double share = 0.03;
  const auto [least, most] = std::ranges::minmax(others);
  const double away = std::max(least - value, value - most);
  return away > most - least && away > share * std::max(std::abs(least), std::abs(most));
}

std::vector<Finding> series_apart(const Evidence& suspect, const std::vector<Evidence>& others) {
  std::vector<std::map<std::string, double>> theirs = transformed(others, monitored_means);
  std::vector<Finding> found;
  for (const auto& [name, value] : monitored_means(suspect)) {
    std::vector<double> values;
    for (const auto& means : theirs) {
      if (const auto place = means.find(name); place != means.end()) {
        values.push_back(place->second);
      }
    }
    if (values.size() < 2 || !is_far(value, values)) continue;
    found.push_back(
        {Urgency::note, name,
         name + " " + significant(value, 3) + ", that of others " + significant(median(values), 3),
         "", ""});
  }
  return found;
}

}  // namespace

std::vector<Finding> causes_of(const Report& report, const SurveySuspect& suspect,
                               const SurveyFamily& family) {
  constexpr size_t most_others = 32;  // the fastest: slower ones may have the same cause
  const Evidence own = evidence_of(report, suspect.units);
  std::vector<Evidence> others;
  for (auto member = family.members.rbegin();
       member != family.members.rend() && others.size() < most_others; ++member) {
    if (member->units != suspect.units) others.push_back(evidence_of(report, member->units));
  }
  // Where all runs for themselves failed there is nothing to compare.
  std::erase_if(others, [](const Evidence& other) { return other.runs.empty(); });
  if (own.runs.empty()) return {};
  // Seen on most others as well, it explains nothing: each is asked for by itself.
  std::map<std::string, size_t> lacking;
  std::map<std::string, Finding> seen;
  std::vector<std::string> order;
  for (const Evidence& other : others) {
    for (Finding& finding : conditions_between(other.side(), own.side())) {
      if (++lacking[finding.code] == 1) order.push_back(finding.code);
      seen[finding.code] = std::move(finding);
    }
  }
  std::vector<Finding> causes;
  for (const std::string& code : order) {
    if (2 * lacking[code] > others.size()) causes.push_back(seen[code]);
  }
  append(causes, series_apart(own, others));
  return causes;
}

}  // namespace nearmetal
