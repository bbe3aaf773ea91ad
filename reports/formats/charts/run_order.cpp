#include "reports/formats/charts/run_order.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "reports/compare/comparison_row.h"
#include "reports/compare/environment_differences.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

constexpr size_t most_listed = 24;  // of an arm

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
      add_new(machines, machine);
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

std::vector<const SetRun*> runs_in_order(const RunArm& arm) {
  Runs runs =
      runs_where(arm, [](const SetRun& run) { return has_throughput(run) && !is_imported(run); });
  std::ranges::stable_sort(runs, {}, [](const SetRun* run) { return run->run.started_at; });
  return runs;
}

std::vector<double> throughputs_of(const std::vector<const SetRun*>& runs) {
  std::vector<double> values;
  for (const SetRun* run : runs) values.push_back(*run->run.throughput);
  return values;
}

TextTable run_order_table(const RunSet& set) {
  TextTable table;
  table.columns = {{"arm"},          {"n", true},   {"min", true},
                   {"median", true}, {"max", true}, {"runs, the first one first"}};
  for (const RunArm& arm : set.arms) {
    const std::vector<double> values = throughputs_of(runs_in_order(arm));
    if (values.size() < 2) continue;
    std::vector<std::string> texts;
    for (size_t i = 0; i < std::min(values.size(), most_listed); ++i) {
      texts.push_back(significant(values[i]));
    }
    if (values.size() > most_listed) {
      texts.push_back("and " + std::to_string(values.size() - most_listed) + " more");
    }
    const auto [least, most] = std::ranges::minmax(values);
    table.rows.push_back({arm.name, std::to_string(values.size()), significant(least),
                          significant(median(values)), significant(most), joined(texts, " ")});
  }
  return table;
}

Chart run_order_chart(const ShownArms& shown) {
  Chart chart{.name = "runs",
              .title = "Runs over time",
              .caption =
                  "Throughput of each complete run against the median of its arm, in the "
                  "order of their start; the table has the least, the median and the "
                  "largest."};
  TextStream csv = csv_with("arm,run,started_at,throughput,percent");
  std::string plots;
  double lowest = 0, highest = 0, longest = 0, first_line = 0;
  size_t arms = 0;
  for (const ShownArm& arm : shown.arms) {
    const std::vector<const SetRun*> runs = runs_in_order(*arm.arm);
    if (runs.size() < 2 || arms == most_arms) continue;
    const double middle = median(throughputs_of(runs));
    for (size_t i = 0; i < runs.size(); ++i) {
      const double percent = 100 * (*runs[i]->run.throughput / middle - 1);
      lowest = std::min(lowest, percent);
      highest = std::max(highest, percent);
      csv << quoted_label(arm.label()) << ',' << i + 1 << ','
          << quoted_label(runs[i]->run.started_at) << ',' << plot_number(*runs[i]->run.throughput)
          << ',' << plot_number(percent) << '\n';
    }
    const auto count = static_cast<double>(runs.size());
    const std::string rows = "$data every ::" + plot_number(first_line) +
                             "::" + plot_number(first_line + count - 1) + " using 'run':'percent' ";
    plots += ", \\\n  " + rows + "with lines lc rgb '" + colour(arms) + "' notitle, \\\n  " + rows +
             "with points " + point(arm.kind, colour(arms)) + " title " + quoted_label(arm.label());
    first_line += count;
    longest = std::max(longest, count);
    ++arms;
  }
  if (arms == 0) return missing_chart(std::move(chart), "no arm has several complete runs");
  const double range = std::max(highest - lowest, 0.01);
  chart.csv = csv.str();
  chart.script = chart_head(280 + key_line_height * static_cast<int>(arms)) +
                 axis('x', 0, longest + 1, std::max(1.0, tick_step(longest, 16)), "run") +
                 axis('y', lowest - 0.1 * range, highest + 0.1 * range, tick_step(range, 8),
                      "% of the median") +
                 "set grid ls 1\n" + key_above +
                 "plot 0 with lines dt 2 lw 1.5 lc rgb 'black' title 'median'" + plots + "\n";
  for (const RunSet* set : shown.sets) {
    TextTable table = run_order_table(*set);
    chart.table.columns = table.columns;
    std::ranges::move(table.rows, std::back_inserter(chart.table.rows));
  }
  chart.caption += counts_text(chart.table);
  return chart;
}

TextTable session_table(const RunSet& set) {
  TextTable table;
  table.columns = {{"arm"}, {"from"}, {"n", true}, {"mean [95 %]", true}, {"commit"}, {"changed"}};
  for (const RunArm& arm : set.arms) {
    const std::vector<Runs> sessions = sessions_in_order(arm);
    const Sessions throughput = throughput_sessions(arm);
    for (size_t i = 0; i < sessions.size() && sessions.size() > 1; ++i) {
      const SetRun& first = *sessions[i].front();
      table.rows.push_back(
          {arm.name, first.run.started_at, std::to_string(sessions[i].size()),
           estimate_text(mean_estimate({{first.session, throughput.at(first.session)}})),
           commit_of(first), i == 0 ? "" : changes_between(sessions[i - 1], sessions[i], set)});
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
