#include "reports/formats/charts/throughput_charts.h"

#include <algorithm>
#include <cmath>

#include "reports/compare/comparison_row.h"
#include "reports/compare/environment_differences.h"
#include "reports/compare/scaling.h"
#include "reports/document/metric.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

std::vector<double> complete_values(const RunArm& arm, const Metric& metric) {
  std::vector<double> values;
  for (const SetRun* run : complete_runs(arm)) {
    if (const Maybe<double> value = metric.value_of(run->run)) values.push_back(*value);
  }
  return values;
}

const UnitWords& words_of(const ShownArms& shown) {
  return words_of(transformed(shown.arms, [](const ShownArm& arm) { return unit_of(*arm.arm); }));
}

struct ShownPoint {
  ScalingPoint point;
  size_t side = 0;
  std::string label;
};

std::vector<ShownPoint> shown_points(const ShownArms& shown) {
  std::vector<ShownPoint> points;
  for (size_t side = 0; side < shown.sets.size(); ++side) {
    for (const ScalingPoint& point : scaling_of(*shown.sets[side])) {
      if (points.size() == most_rows) return points;
      points.push_back({point, side, labelled(point.arm, shown.sides[side])});
    }
  }
  return points;
}

// One figure of each point as caption and table tell it.
void describe(Chart& chart, const std::vector<ShownPoint>& points, const char* figure,
              Estimate ScalingPoint::*value, double scale = 1) {
  chart.table.columns = {{"arm"},     {"ranks", true},
                         {"against"}, {std::string(figure) + " [95 %]", true},
                         {"n", true}, {"scaling, batch"}};
  for (const auto& [point, side, label] : points) {
    chart.table.rows.push_back({label, std::to_string(point.ranks), point.against,
                                point.is_reference() ? "-" : estimate_text(scale * (point.*value)),
                                std::to_string(point.runs), scaling_text(point)});
  }
  chart.caption += counts_text(chart.table);
}

// Points of equal ranks stand side by side, as those of equal height would hide each other: how far
// beside their number, in steps to the right.
double beside(const std::vector<ShownPoint>& points, size_t index) {
  double before = 0, all = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    if (points[i].point.ranks != points[index].point.ranks) continue;
    before += i < index ? 1 : 0;
    all += 1;
  }
  return before - (all - 1) / 2;
}

std::string csv_of(const std::vector<ShownPoint>& points) {
  TextStream csv = csv_with("arm,kind,scaling,against,ranks,beside,speedup,lower,upper");
  for (size_t i = 0; i < points.size(); ++i) {
    const ScalingPoint& point = points[i].point;
    const Interval whisker = whisker_of(point.speedup);
    csv << quoted_label(points[i].label) << ',' << to_string(point.kind) << ','
        << to_string(point.scaling) << ',' << quoted_label(point.reference) << ',' << point.ranks
        << ',' << beside(points, i) << ',' << point.speedup.value << ',' << whisker.lower << ','
        << whisker.upper << '\n';
  }
  return csv.str();
}

std::string title_of(const ShownPoint& shown) {
  const ScalingPoint& point = shown.point;
  return shown.label + (point.is_reference() ? ": reference" : ", against " + point.reference) +
         (point.kind == Kind::measured ? "" : std::string(", ") + to_string(point.kind));
}

std::string script_of(const std::vector<ShownPoint>& points) {
  double most_ranks = 0;
  std::vector<Estimate> speedups;
  for (const auto& [point, side, label] : points) {
    most_ranks = std::max(most_ranks, static_cast<double>(point.ranks));
    speedups.push_back(point.speedup);
  }
  const double most = 1.08 * most_ranks;
  const AxisEnd end = axis_end(speedups, most);
  std::string script = chart_head(320 + key_line_height * static_cast<int>(points.size()), end) +
                       axis('x', 0, most, std::max(1.0, tick_step(most_ranks, 16)), "ranks") +
                       axis('y', 0, 1.05 * end.value, tick_step(end.value, 8), "speedup") +
                       "set grid ls 1\n" + key_above +
                       "plot x with lines dt 2 lw 1.5 lc rgb 'black' title 'ideal'";
  const std::string ranks =
      "(column('ranks') + " + plot_number(0.025 * most_ranks) + " * column('beside'))";
  for (size_t i = 0; i < points.size(); ++i) {
    const std::string row = "$data every ::" + std::to_string(i) + "::" + std::to_string(i);
    script += ", \\\n  " + whiskers(row, ranks, colour(i)) + ", \\\n  " + row + " using " + ranks +
              ":'speedup' with points " + point(points[i].point.kind, colour(i)) + " title " +
              quoted_label(title_of(points[i]));
  }
  return script + "\n";
}

constexpr const char* one_number_of_ranks =
    "no arms did the same work with different numbers of ranks";

constexpr size_t most_listed = 24;  // of an arm

// The complete runs of an arm that it took itself, in order of their start.
SomeRuns runs_in_order(const RunArm& arm) {
  return in_order(
      runs_where(arm, [](const SetRun& run) { return has_throughput(run) && !is_imported(run); }));
}

std::vector<double> throughputs_of(const SomeRuns& runs) {
  return transformed(runs, [](const SetRun* run) { return *run->run.throughput; });
}

// In order of their start.
std::vector<SomeRuns> sessions_in_order(const RunArm& arm) {
  std::vector<std::pair<std::string, SomeRuns>> sessions;
  for (const SetRun* run : runs_in_order(arm)) value_beside(run->session, sessions).push_back(run);
  return transformed(sessions, [](const auto& session) { return session.second; });
}

std::vector<Environment> machines_of(const SomeRuns& runs, const RunSet& set) {
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

std::string changes_between(const SomeRuns& before, const SomeRuns& runs, const RunSet& set) {
  constexpr size_t most_named = 3;
  std::vector<std::string> changes =
      transformed(environment_differences(machines_of(before, set), machines_of(runs, set)),
                  [](const EnvironmentDifference& found) {
                    return found.name + ": " + found.base + " -> " + found.other;
                  });
  const size_t more = changes.size() - std::min(changes.size(), most_named);
  changes.resize(changes.size() - more);
  return joined(changes, "; ") + (more > 0 ? "; " + std::to_string(more) + " more" : "");
}

std::string commit_of(const SetRun& run) {
  return run.tool.git_commit ? cut(*run.tool.git_commit, 12) : "unknown";
}

}  // namespace

Chart throughput_chart(const ShownArms& shown) {
  const UnitWords& words = words_of(shown);
  Chart chart{.name = "throughput", .title = "Throughput"};
  chart.table.columns = {
      {"arm"}, {std::string(words.rate) + " [95 %]", true}, {"n", true}, {"kind"}};
  Bars bars{.rows = shown.rows, .sides = shown.sides, .axis = words.rate};
  for (const ShownArm& arm : shown.arms) {
    const Metric& metric = throughput_metric(unit_of(*arm.arm));
    const SideSummary side = summary_of_arm(*arm.arm, metric);
    if (!side.geometric_mean) continue;
    bars.bars.push_back({arm.label(), arm.row, arm.side_index, arm.kind, side.mean(),
                         complete_values(*arm.arm, metric)});
    chart.table.rows.push_back(
        {arm.label(), mean_text(side, metric), std::to_string(side.runs), to_string(arm.kind)});
  }
  chart.caption =
      "Geometric mean of runs; whiskers: its 95 % interval, none for one run; circles: runs." +
      counts_text(chart.table) + left_out_text(shown.left_out);
  return bar_chart(std::move(chart), bars, "no run is complete");
}

Chart speedup_chart(const ShownArms& shown) {
  Chart chart{
      .name = "speedup",
      .title = "Speedup",
      .caption =
          "Throughput against that of the reference, the arm with the fewest ranks, times its "
          "ranks; weak scaling: the same batch on each rank, strong: in all; dashed: ideal, which "
          "is where a reference is drawn; whiskers: 95 % interval, which takes 2 runs of both. "
          "Points of equal ranks are drawn side by side."};
  const std::vector<ShownPoint> points = shown_points(shown);
  if (points.empty()) return missing_chart(std::move(chart), one_number_of_ranks);
  describe(chart, points, "speedup", &ScalingPoint::speedup);
  chart.csv = csv_of(points);
  chart.script = script_of(points);
  return chart;
}

Chart efficiency_chart(const ShownArms& shown) {
  Chart chart{.name = "efficiency",
              .title = "Scaling efficiency",
              .caption =
                  "Speedup as a share of the ideal, the dashed line; whiskers: 95 % "
                  "interval. Above 100 % look at the reference."};
  Bars bars{.sides = shown.sides, .axis = "% of the ideal", .line = 100};
  const std::vector<ShownPoint> points = shown_points(shown);
  for (const auto& [point, side, label] : points) {
    const std::string name = point.arm + (point.is_reference() ? ", reference" : "");
    add_new(bars.rows, name);
    const size_t row = std::ranges::find(bars.rows, name) - bars.rows.begin();
    bars.bars.push_back(
        {labelled(name, shown.sides[side]), row, side, point.kind, 100 * point.efficiency});
  }
  describe(chart, points, bars.axis.c_str(), &ScalingPoint::efficiency, 100);
  return bar_chart(std::move(chart), bars, one_number_of_ranks);
}

Chart cost_chart(const ShownArms& shown) {
  Chart chart{.name = "cost",
              .title = "Time against cost",
              .caption = "Geometric means; the table has their intervals."};
  chart.table.columns = {{"arm"}, {"hours [95 %]", true}, {"cost [95 %]", true}, {"n", true}};
  TextStream csv = csv_with("arm,hours,cost");
  double longest = 0, dearest = 0;
  for (const ShownArm& arm : shown.arms) {
    const SideSummary time = summary_of_arm(*arm.arm, metric_from(to_string(CostFigure::hours)));
    const SideSummary cost = summary_of_arm(*arm.arm, metric_from(to_string(CostFigure::cost)));
    if (!time.geometric_mean || !cost.geometric_mean) continue;
    const double hours = *time.geometric_mean, price = *cost.geometric_mean;
    longest = std::max(longest, hours);
    dearest = std::max(dearest, price);
    csv << quoted_label(arm.label()) << ',' << hours << ',' << price << '\n';
    chart.table.rows.push_back({arm.label(), estimate_text(time.mean()), estimate_text(cost.mean()),
                                std::to_string(time.runs)});
  }
  if (chart.table.rows.empty()) return missing_chart(std::move(chart), "no arm has both");
  chart.caption += counts_text(chart.table) + left_out_text(shown.left_out);
  chart.csv = csv.str();
  chart.script = chart_head(400) + axis('x', 0, 1.5 * longest, tick_step(longest, 4), "hours") +
                 axis('y', 0, 1.1 * dearest, tick_step(dearest, 8), "cost") +
                 "set grid ls 1\nplot $data using 'hours':'cost' with points " +
                 point(Kind::measured, colour(0)) +
                 ", '' using 'hours':'cost':(strcol('arm')) with labels left offset 0.8,0.5\n";
  return chart;
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
    const SomeRuns runs = runs_in_order(*arm.arm);
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
    append(chart.table.rows, std::move(table.rows));
  }
  chart.caption += counts_text(chart.table);
  return chart;
}

TextTable session_table(const RunSet& set) {
  TextTable table;
  table.columns = {{"arm"}, {"from"}, {"n", true}, {"mean [95 %]", true}, {"commit"}, {"changed"}};
  for (const RunArm& arm : set.arms) {
    const std::vector<SomeRuns> sessions = sessions_in_order(arm);
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
  for (const SomeRuns& runs : sessions_in_order(set.arms.front())) {
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
