#include "reports/formats/report_text.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "base/text.h"
#include "reports/compare/comparison_row.h"
#include "reports/compare/scaling.h"
#include "reports/compare/work_text.h"
#include "reports/document/warning.h"
#include "reports/formats/charts/throughput_charts.h"
#include "reports/formats/headline.h"
#include "reports/formats/nic_text.h"
#include "reports/formats/run_tables.h"
#include "reports/sharing/arm_figures.h"
#include "reports/sharing/fraction_tables.h"
#include "reports/sharing/fractions.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

// Those that are asked for by name; of all, or of the usual ones, those that a run has.
std::vector<const Metric*> listed_metrics(const RunSet& set, const RunArm& arm) {
  const auto asks_for = [&](const char* name) { return find_in(set.metrics, name) != nullptr; };
  const bool usual = set.metrics.empty(), is_open = complete_runs(arm).empty();
  std::vector<const Metric*> metrics =
      usual ? shown_metrics(runs_of(arm)) : all_metrics_of(std::vector{unit_of(arm)});
  std::erase_if(metrics, [&](const Metric* metric) {
    const bool is_throughput = metric == &throughput_metric(unit_of(arm));
    if (asks_for(metric->name) || (is_throughput && asks_for(throughput_of_runs))) return false;
    const bool has_none = !is_open && summary_of_arm(arm, *metric).runs == 0;
    return has_none || !(usual || asks_for(all_of_runs));
  });
  return metrics;
}

constexpr const char* how_to_list = "all figures: --metric all";

// Arms beside one another answer by how they compare: all figures are of one arm, or asked for.
bool lists_figures(const RunSet& set) {
  return set.arms.size() < 2 || !set.metrics.empty() || !set.cost_notes.empty() ||
         is_imported(set.arms.front());  // which may have no throughput, but that of links
}

// The runs that are not complete, for one metric; for the others what complete runs lack.
std::vector<LeftOut> left_out_of(const RunSet& set, const RunArm& arm) {
  std::vector<LeftOut> found = nearmetal::left_out_of(arm, throughput_metric(unit_of(arm)));
  std::vector<const Metric*> metrics = cost_metrics(arm);
  // A value that its file lacks is missing from no mean.
  if (lists_figures(set) && !is_imported(arm)) append(metrics, listed_metrics(set, arm));
  std::erase(metrics, &throughput_metric(unit_of(arm)));
  for (const Metric* metric : metrics) {
    std::ranges::copy_if(nearmetal::left_out_of(arm, *metric), std::back_inserter(found),
                         [](const LeftOut& run) { return !run.metric.empty(); });
  }
  return found;
}

// "1x1x1", or of several arms how many.
std::string arms_text(const std::vector<std::string>& arms) {
  return arms.size() == 1 ? arms.front() : counted(std::ssize(arms), "arm");
}

using ArmsByText = std::map<std::string, std::vector<std::string>>;

// Adds each reason why runs are missing from means, once.
void add_left_out(std::vector<std::string>& lines, const RunSet& set) {
  using Key = std::pair<std::string, std::string>;  // what they lack, and why
  std::map<Key, std::pair<std::vector<std::string>, std::vector<LeftOut>>> reasons;
  for (const RunArm& arm : set.arms) {
    for (const LeftOut& run : left_out_of(set, arm)) {
      auto& [arms, runs] = reasons[{run.metric, run.why}];
      if (arms.empty() || arms.back() != arm.name) arms.push_back(arm.name);
      runs.push_back(run);
    }
  }
  for (const auto& [key, found] : reasons) {
    for (const std::string& text : left_out_texts(found.second)) {
      lines.push_back(arms_text(found.first) + ": " + text);
    }
  }
}

// Arms whose runs are of other machines, each of which would have a mean of its own.
ArmsByText mixed_machines(const RunSet& set) {
  ArmsByText arms;
  for (const RunArm& arm : set.arms) {
    std::set<std::string> hosts;
    for (const SetRun& run : arm.runs) hosts.insert(hosts_of(set, run.run));
    hosts.erase("");
    if (hosts.size() < 2) continue;
    arms["runs of several machines in one mean (" +
         shortened(joined({hosts.begin(), hosts.end()})) +
         "); `report NAME=FILE...` holds machines apart"]
        .push_back(arm.name);
  }
  return arms;
}

// Where a mean or a speedup is of several builds, so that it may tell of them, too.
ArmsByText mixed_builds(const RunSet& set) {
  ArmsByText arms;
  for (const RunArm& arm : set.arms) {
    const std::vector<Tool> builds = builds_of(complete_runs(arm));
    if (builds.size() < 2) continue;
    arms["runs of several builds of nearmetal in one mean (" + builds_text(builds) + ")"].push_back(
        arm.name);
  }
  for (const ScalingPoint& point : scaling_of(set)) {
    const std::vector<Tool> own = builds_of(complete_runs(*arm_named(point.arm, set))),
                            reference = builds_of(complete_runs(*arm_named(point.reference, set)));
    if (std::ranges::is_permutation(own, reference)) continue;
    arms["speedup against " + point.reference + ", which ran another build of nearmetal (" +
         builds_text(own, reference) + " | " + builds_text(reference, own) + ")"]
        .push_back(point.arm);
  }
  return arms;
}

// "; worst: 1x1x2, run 3, rank 1 (host)", with the arm and the file where there are several.
std::string worst_text(const RunWarning& found, const RunArm& arm, const SetRun& run,
                       bool names_arm) {
  const bool of_one_file = std::ranges::all_of(
      arm.runs, [&](const SetRun& other) { return other.source == run.source; });
  const std::string givers = joined(givers_of(found.warning));
  return "; worst: " + (names_arm ? arm.name + ", " : "") + "run " +
         std::to_string(&run - &arm.runs.front() + 1) +
         (of_one_file ? "" : " (" + run.source + ")") + (givers.empty() ? "" : ", " + givers);
}

// Adds each kind of warning once.
void add_warnings(std::vector<std::string>& lines, const RunSet& set) {
  SomeRuns runs;
  std::vector<const RunArm*> arm_of;  // by run
  for (const RunArm& arm : set.arms) {
    append(runs, runs_of(arm));
    arm_of.resize(runs.size(), &arm);
  }
  for (const RunWarning& found : warnings_of(runs)) {
    std::vector<std::string> arms;
    for (const size_t run : found.runs) add_new(arms, arm_of[run]->name);
    lines.push_back(
        arms_text(arms) + ": " + found.warning.code + " (" +
        extent_text(found, counted(std::ssize(found.runs), "run")) + "): " + found.warning.text +
        (found.worst
             ? worst_text(found, *arm_of[*found.worst], *runs[*found.worst], arms.size() > 1)
             : ""));
  }
}

using Facts = std::vector<std::pair<std::string, std::string>>;

// Distinct values of each field of the comparable key, in its order.
Facts facts_of_keys(const RunSet& set) {
  std::vector<std::pair<std::string, std::vector<std::string>>> facts;
  for (const SetRun& run : all_runs(set)) {
    for (const KeyField& field : run.key) add_new(value_beside(field.name, facts), field.value);
  }
  return transformed(facts,
                     [](const auto& fact) { return std::pair(fact.first, joined(fact.second)); });
}

Facts facts_of_machines(const RunSet& set) {
  Facts facts = joined_facts(set.environments);
  for (auto& [name, values] : facts) values = shortened(readable_fact(name, values));
  return facts;
}

// A column for each side.
TextTable side_by_side(const char* title, const Sides& sides, Facts (*facts_of)(const RunSet&)) {
  TextTable table{.columns = {{title}}};
  std::map<std::string, size_t> rows;
  for (size_t side = 0; side < sides.size(); ++side) {
    table.columns.push_back({sides.size() == 1 ? "value" : sides[side].first});
    for (const auto& [name, value] : facts_of(*sides[side].second)) {
      const auto [row, is_new] = rows.emplace(name, table.rows.size());
      if (is_new) table.rows.emplace_back(sides.size() + 1, "-").front() = name;
      table.rows[row->second].at(side + 1) = value;
    }
  }
  return table;
}

// The slowest and the fastest rank of each run of several.
TextTable rank_table(const Sides& sides) {
  TextTable table;
  table.columns = {{"arm"},     {"run", true},          {"slowest rank", true},
                   {"%", true}, {"fastest rank", true}, {"%", true}};
  for (const auto& [side, set] : sides) {
    for (const RunArm& arm : set->arms) {
      for (size_t i = 0; i < arm.runs.size(); ++i) {
        const std::vector<Rank>& ranks = arm.runs[i].run.ranks;
        const auto is_timed = [](const Rank& rank) { return rank.step_time.value.has_value(); };
        if (ranks.size() < 2 || !std::ranges::all_of(ranks, is_timed)) continue;
        const std::vector<double> medians =
            transformed(ranks, [](const Rank& rank) { return rank.step_time->median_seconds; });
        std::vector<std::string>& row = table.rows.emplace_back();
        row = {labelled(arm.name, side), std::to_string(i + 1)};
        const auto [least, most] = std::ranges::minmax_element(medians);
        for (const auto rank : {most, least}) {
          row.push_back(std::to_string(rank - medians.begin()));
          row.push_back(signed_percent(*rank / median(medians) - 1));
        }
      }
    }
  }
  return table;
}

// One row for each arm and metric, with the interval of its runs.
TextTable report_table(const RunSet& set) {
  TextTable table;
  table.columns = {{"arm"},     {"metric"},       {"mean [95 %]", true},
                   {"n", true}, {"spread", true}, {"left out", true}};
  for (const RunArm& arm : set.arms) {
    std::vector<const Metric*> metrics = listed_metrics(set, arm);
    if (is_imported(arm)) metrics.push_back(&bus_bandwidth_metric());
    append(metrics, cost_metrics(arm));
    for (const Metric* metric : metrics) {
      const SideSummary side = summary_of_arm(arm, *metric);
      if (side.runs == 0 && is_imported(arm)) continue;  // a published file tells few figures
      table.rows.push_back({arm.name, std::string(metric->name) + ", " + metric->unit,
                            mean_text(side, *metric), counted_files(std::to_string(side.runs), arm),
                            side.spread ? significant(100 * side.spread->deviation, 2) + " %" : "-",
                            std::to_string(side.left_out)});
    }
  }
  return table;
}

Page head_of(const RunSet& set) {
  Page page{.work = work_lines({{"", &set}}), .headlines = headlines(set)};
  if (shares_a_device(set)) page.tables = fraction_tables(set);
  page.remarks = run_warnings(set);
  const bool few = std::ranges::any_of(set.arms, [](const RunArm& arm) {
    return has_few_runs(summary_of_arm(arm, throughput_metric(unit_of(arm))));
  });
  if (few) page.remarks.insert(page.remarks.begin(), few_runs_text);
  return page;
}

void add_scaling(Page& page, const RunSet& set, const char* legend = "") {
  add_table(page.tables,
            {.title = "Scaling", .table = scaling_table(set), .legend = legend, .titled = false});
}

void add_figures(Page& page, const RunSet& set, bool folded) {
  page.tables.push_back(
      {.title = "All figures", .table = report_table(set), .titled = false, .folded = folded});
}

}  // namespace

std::vector<std::string> run_warnings(const RunSet& set) {
  std::vector<std::string> lines = set.cost_notes;
  ArmsByText derivations;
  for (const RunArm& arm : set.arms) {
    if (is_imported(arm)) derivations["imported, " + arm.runs[0].derived].push_back(arm.name);
    const std::string differences = different_work(arm);
    if (differences.empty()) continue;
    lines.push_back(arm.name + ": its runs did different work, so that their mean says nothing: " +
                    shortened(differences));
  }
  for (const ArmsByText& arms : {derivations, mixed_machines(set), mixed_builds(set)}) {
    for (const auto& [text, names] : arms) lines.push_back(arms_text(names) + ": " + text);
  }
  add_left_out(lines, set);
  append(lines, share_remarks(set));
  append(lines, arm_remarks(set));
  add_warnings(lines, set);
  return lines;
}

std::vector<TitledTable> details_of(const Sides& sides) {
  std::vector<TitledTable> tables;
  add_table(tables, {"Step time by rank", rank_table(sides),
                     "Deviation of a rank's median step time from that of the run's middle rank."});
  tables.push_back({"The work", side_by_side("what must agree", sides, facts_of_keys)});
  tables.push_back({"The machines", side_by_side("fact", sides, facts_of_machines)});
  for (TitledTable& table : tables) table.folded = true;
  return tables;
}

Page page_of(const RunSet& set) {
  Page page = head_of(set);
  append(page.tables, tables_beside_figures(set));
  if (shows_speedup(set) || !lists_figures(set) || !set.metrics.empty()) {
    add_scaling(page, set, lists_figures(set) ? "" : how_to_list);
  }
  if (lists_figures(set)) add_figures(page, set, set.cost_notes.empty() && set.metrics.empty());
  add_table(page.tables, {"Sessions over time", session_table(set)});
  add_table(page.tables,
            {.title = "Runs over time", .table = run_order_table(set), .folded = true});
  for (TitledTable& table : nic_tables(set.environments)) {
    table.folded = true;
    page.tables.push_back(std::move(table));
  }
  return page;
}

Page sweep_page(const RunSet& set) {
  Page page = head_of(set);
  add_table(page.tables, knee_table(set));
  add_scaling(page, set);
  if (!set.cost_notes.empty()) page.tables.push_back({"All figures", report_table(set)});
  return page;
}

Page report_page(const GroupedRuns& runs) {
  const Sides sides = sides_of(runs);
  Page page = page_of(runs.all);
  const std::string task = task_of(runs.all);
  page.title = "nearmetal: " + (task.empty() ? "training" : task) + " throughput";
  page.work = work_lines(sides);
  page.charts = charts_of(runs);
  if (!lists_figures(runs.all)) add_figures(page, runs.all, true);
  append(page.tables, details_of(sides));
  return page;
}

void print_text(std::ostream& out, const RunSet& set) { print_text(out, page_of(set)); }

void print_markdown(std::ostream& out, const RunSet& set) { print_markdown(out, page_of(set)); }

void print_github_summary(std::ostream& out, const RunSet& set) {
  constexpr size_t most_bytes = 1'000'000;  // of 1 MiB
  TextStream text;
  text << "## nearmetal\n\n";
  print_markdown(text, set);
  std::string summary = text.str();
  if (summary.size() > most_bytes) {
    summary.resize(summary.rfind('\n', most_bytes) + 1);
    summary += "\nCut here: the whole is larger than a step summary may be.\n";
  }
  out << summary;
}

}  // namespace nearmetal
