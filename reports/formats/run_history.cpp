#include "reports/formats/run_history.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "reports/compare/comparison_row.h"
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
    const Sessions throughput = throughput_sessions(arm);
    for (size_t i = 0; i < sessions.size() && sessions.size() > 1; ++i) {
      const SetRun& first = *sessions[i].front();
      const SessionTerm one{1, {{first.session, throughput.at(first.session)}}};
      table.rows.push_back({arm.name, first.run.started_at, std::to_string(sessions[i].size()),
                            estimate_text(estimate_around(mean_of(one.runs), {&one, 1})),
                            commit_of(first),
                            i == 0 ? "" : changes_between(sessions[i - 1], sessions[i], set)});
    }
  }
  return table;
}

void print_otava_csv(std::ostream& out, const RunSet& set) {
  std::vector<Sessions> of_arms;
  out << "time,commit";
  for (const RunArm& arm : set.arms) {
    of_arms.push_back(throughput_sessions(arm));
    out << ",\"" << replaced(printable(arm.name), "\"", "\"\"") << '"';
  }
  out << "\r\n";
  if (set.arms.empty()) return;
  for (const Runs& runs : sessions_in_order(set.arms.front())) {
    const SetRun& first = *runs.front();
    std::string line = first.run.started_at + "," + commit_of(first);
    bool in_all = true;
    for (const Sessions& sessions : of_arms) {
      const auto found = sessions.find(first.session);
      in_all = in_all && found != sessions.end();
      if (in_all) line += "," + exact(std::exp(mean(found->second)));
    }
    if (in_all) out << line << "\r\n";
  }
}

}  // namespace nearmetal
