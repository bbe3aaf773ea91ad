#include "reports/formats/run_history.h"

#include <algorithm>
#include <map>

#include "reports/compare/environment_differences.h"
#include "reports/formats/charts/run_order.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

using Runs = std::vector<const SetRun*>;

// In order of their start.
std::vector<Runs> sessions_in_order(const RunArm& arm) {
  std::vector<Runs> sessions;
  std::map<std::string, size_t> places;
  for (const SetRun* run : runs_in_order(arm)) {
    const auto [place, is_new] = places.emplace(run->session, sessions.size());
    if (is_new) sessions.emplace_back();
    sessions[place->second].push_back(run);
  }
  return sessions;
}

std::vector<Environment> machines_of(const Runs& runs, const RunSet& set) {
  std::vector<Environment> machines;
  for (const SetRun* run : runs) {
    for (const Rank& rank : run->run.ranks) {
      if (rank.environment < 0) continue;
      const Environment& machine = set.environments.at(rank.environment);
      if (std::ranges::find(machines, machine) == machines.end()) machines.push_back(machine);
    }
  }
  return machines;
}

std::string changes_between(const Runs& before, const Runs& runs, const RunSet& set) {
  constexpr size_t most_named = 3;
  std::vector<std::string> changes;
  for (const EnvironmentDifference& found :
       environment_differences(machines_of(before, set), machines_of(runs, set))) {
    changes.push_back(found.name + ": " + found.base + " -> " + found.other);
  }
  const size_t more = changes.size() - std::min(changes.size(), most_named);
  changes.resize(changes.size() - more);
  return joined(changes, "; ") + (more > 0 ? "; " + std::to_string(more) + " more" : "");
}

std::string commit_of(const SetRun& run) {
  return run.tool.git_commit ? cut(*run.tool.git_commit, 12) : "unknown";
}

}  // namespace

TextTable session_table(const RunSet& set) {
  TextTable table;
  table.columns = {{"arm"}, {"from"}, {"n", true}, {"mean [95 %]", true}, {"commit"}, {"changed"}};
  for (const RunArm& arm : set.arms) {
    const std::vector<Runs> sessions = sessions_in_order(arm);
    for (size_t i = 0; i < sessions.size() && sessions.size() > 1; ++i) {
      const std::vector<double> values = throughputs_of(sessions[i]);
      const auto estimate = log_mean(values);
      const double mean = geometric_mean(values);
      table.rows.push_back(
          {arm.name, sessions[i].front()->run.started_at, std::to_string(values.size()),
           estimate ? with_interval(mean, interval(*estimate, side_confidence)) : significant(mean),
           commit_of(*sessions[i].front()),
           i == 0 ? "" : changes_between(sessions[i - 1], sessions[i], set)});
    }
  }
  return table;
}

void print_otava_csv(std::ostream& out, const RunSet& set) {
  std::vector<std::map<std::string, const Runs*>> others;  // by arm and session
  std::vector<std::vector<Runs>> of_arms;
  out << "time,commit";
  for (const RunArm& arm : set.arms) {
    of_arms.push_back(sessions_in_order(arm));
    out << ",\"" << replaced(printable(arm.name), "\"", "\"\"") << '"';
  }
  out << "\r\n";
  for (const std::vector<Runs>& sessions : of_arms) {
    auto& by_session = others.emplace_back();
    for (const Runs& runs : sessions) by_session[runs.front()->session] = &runs;
  }
  for (size_t i = 0; !of_arms.empty() && i < of_arms.front().size(); ++i) {
    const SetRun& first = *of_arms.front()[i].front();
    std::string line = first.run.started_at + "," + commit_of(first);
    const bool in_all = std::ranges::all_of(others, [&](const auto& by_session) {
      const auto found = by_session.find(first.session);
      if (found == by_session.end()) return false;
      line += "," + exact(geometric_mean(throughputs_of(*found->second)));
      return true;
    });
    if (in_all) out << line << "\r\n";
  }
}

}  // namespace nearmetal
