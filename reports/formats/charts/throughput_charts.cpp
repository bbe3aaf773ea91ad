#include "reports/formats/charts/throughput_charts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

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

// As the table has it: of few runs the median, without an interval.
Estimate shown_mean(const SideSummary& side) {
  return has_few_runs(side) ? Estimate{median(side.values)} : side.mean();
}

struct ShownCurve {
  std::string title;
  size_t side = 0;
  std::vector<ScalingPoint> points;
};

struct ShownCurves {
  std::vector<ShownCurve> curves{};
  size_t left_out = 0;
  std::vector<Tick> ranks{};  // all that occur
};

ShownCurves shown_curves(const ShownArms& shown) {
  ShownCurves result;
  std::set<int64_t> ranks;
  for (size_t side = 0; side < shown.sets.size(); ++side) {
    for (ScalingCurve& curve : scaling_curves(*shown.sets[side])) {
      if (result.curves.size() == most_curves) {
        ++result.left_out;
        continue;
      }
      for (const ScalingPoint& point : curve.points) ranks.insert(point.ranks);
      const std::string title = labelled(curve.title, shown.sides[side]);
      const Kind kind = curve.points.back().kind;
      result.curves.push_back({labelled(title, kind == Kind::measured ? "" : to_string(kind)), side,
                               std::move(curve.points)});
    }
  }
  for (const int64_t number : ranks) {
    result.ranks.push_back({static_cast<double>(number), std::to_string(number)});
  }
  return result;
}

// A curve for each, of one figure of its points, over the logarithm of the ranks.
Plot plot_of(const ShownCurves& shown,
             const std::function<Estimate(const ScalingPoint& point, size_t side)>& figure) {
  constexpr double space = 1.12;
  Plot plot{.x = {.title = "ranks",
                  .begin = shown.ranks.front().value / space,
                  .end = shown.ranks.back().value * space,
                  .log2 = true,
                  .ticks = shown.ranks}};
  for (const ShownCurve& curve : shown.curves) {
    Series series{.title = curve.title,
                  .look = Look::joined,
                  .colour = plot.series.size(),
                  .kind = curve.points.back().kind};
    for (const ScalingPoint& point : curve.points) {
      const Estimate value = figure(point, curve.side);
      series.marks.push_back(
          {static_cast<double>(point.ranks), value.value, value.interval, point.arm});
    }
    plot.series.push_back(std::move(series));
  }
  return plot;
}

std::vector<Estimate> figures_of(const Plot& plot) {
  std::vector<Estimate> figures;
  for (const Series& series : plot.series) {
    for (const Mark& mark : series.marks) figures.push_back({mark.y, mark.interval});
  }
  return figures;
}

double least_of(const Plot& plot) {
  return std::ranges::min(figures_of(plot), {}, &Estimate::value).value;
}

// From a bit below the least figure on, so that what doubles rises by the same everywhere.
Axis log_axis(const Plot& plot, const std::string& title) {
  constexpr double space = 1.15;
  return {.title = title,
          .begin = least_of(plot) / space,
          .end = space * axis_end(figures_of(plot)),
          .log2 = true};
}

// A chart of one figure of each point, which `finish` completes.
Chart scaling_chart(Chart chart, const ShownArms& shown, const char* figure,
                    Estimate ScalingPoint::*value, double scale,
                    void (*finish)(Plot& plot, Chart& chart)) {
  const ShownCurves curves = shown_curves(shown);
  if (curves.curves.empty()) {
    return missing_chart(std::move(chart),
                         "no arms did the same work with different numbers of ranks");
  }
  chart.table.columns = {{"arm"},     {"ranks", true},
                         {"against"}, {std::string(figure) + " [95 %]", true},
                         {"n", true}, {"scaling, batch"}};
  std::vector<std::string> references;
  std::set<std::string> told;
  for (const ShownCurve& curve : curves.curves) {
    add_new(references, curve.points.front().arm);
    for (const ScalingPoint& point : curve.points) {
      const std::string label = labelled(point.arm, shown.sides[curve.side]);
      if (!told.insert(label + point.reference).second) continue;
      chart.table.rows.push_back(
          {label, std::to_string(point.ranks), point.against,
           point.is_reference() ? "-" : estimate_text(scale * (point.*value)),
           std::to_string(point.runs), scaling_text(point)});
    }
  }
  chart.title += " over " + (references.size() == 1 ? references.front() : "the fewest ranks");
  chart.title = titled(chart.title, shown);
  chart.caption += counts_text(chart.table) + left_out_text(curves.left_out);
  Plot plot =
      plot_of(curves, [&](const ScalingPoint& point, size_t) { return scale * (point.*value); });
  finish(plot, chart);
  chart.plots = {std::move(plot)};
  return chart;
}

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
  const auto changes =
      transformed(environment_differences(machines_of(before, set), machines_of(runs, set)),
                  [](const EnvironmentDifference& found) {
                    return found.name + ": " + found.base + " -> " + found.other;
                  });
  return joined_first(most_named, changes, "; ", "; ");
}

// Whether each of so many arms that have a throughput is a point of a curve.
bool hold_all(const ShownCurves& curves, const ShownArms& shown, size_t arms) {
  std::set<std::string> held;
  for (const ShownCurve& curve : curves.curves) {
    for (const ScalingPoint& point : curve.points) {
      held.insert(labelled(point.arm, shown.sides[curve.side]));
    }
  }
  return !held.empty() && held.size() == arms && curves.left_out + shown.left_out == 0;
}

std::string commit_of(const SetRun& run) {
  return run.tool.git_commit ? cut(*run.tool.git_commit, 12) : "unknown";
}

}  // namespace

Chart throughput_chart(const ShownArms& shown) {
  const UnitWords& words =
      words_of(transformed(shown.arms, [](const ShownArm& arm) { return unit_of(*arm.arm); }));
  Chart chart{.name = "throughput", .title = titled("Throughput", shown)};
  chart.table.columns = {
      {"arm"}, {std::string(words.rate) + " [95 %]", true}, {"n", true}, {"kind"}};
  Bars bars{.rows = shown.rows, .sides = shown.sides, .axis = words.rate};
  for (const ShownArm& arm : shown.arms) {
    const Metric& metric = throughput_metric(unit_of(*arm.arm));
    const SideSummary side = summary_of_arm(*arm.arm, metric);
    if (!side.geometric_mean) continue;
    bars.bars.push_back(
        {arm.row, arm.side_index, arm.kind, shown_mean(side), complete_values(*arm.arm, metric)});
    chart.table.rows.push_back(
        {arm.label(), mean_text(side, metric), std::to_string(side.runs), to_string(arm.kind)});
  }
  chart.caption = "Geometric mean of runs with its 95 % interval; of fewer than 4 the median." +
                  counts_text(chart.table) + left_out_text(shown.left_out);
  const ShownCurves curves = shown_curves(shown);
  if (!hold_all(curves, shown, bars.bars.size())) {
    return bar_chart(std::move(chart), bars, "no run is complete");
  }
  Plot plot = plot_of(curves, [&](const ScalingPoint& point, size_t side) {
    const RunArm& arm = *arm_named(point.arm, *shown.sets[side]);
    return shown_mean(summary_of_arm(arm, throughput_metric(unit_of(arm))));
  });
  plot.y = log_axis(plot, words.rate);
  chart.plots = {std::move(plot)};
  return chart;
}

Chart speedup_chart(const ShownArms& shown) {
  return scaling_chart(
      {.name = "speedup",
       .title = "Speedup",
       .caption =
           "Throughput against that of the reference, the arm with the fewest ranks, times its "
           "ranks; weak scaling: the same batch on each rank, strong: in all; dashed: ideal, which "
           "is where a reference is drawn; whiskers: 95 % interval, which takes 2 runs of both. "
           "Both axes are logarithmic."},
      shown, "speedup", &ScalingPoint::speedup, 1, [](Plot& plot, Chart&) {
        const double least = plot.x.ticks.front().value, most = plot.x.ticks.back().value;
        plot.series.insert(plot.series.begin(), {.title = "ideal",
                                                 .look = Look::line,
                                                 .dashed = true,
                                                 .marks = {{least, least}, {most, most}}});
        plot.y = log_axis(plot, "speedup");
        for (double ranks = 1; ranks < std::min(plot.y.end, 1e9); ranks *= 2) {
          if (ranks >= plot.y.begin) plot.y.ticks.push_back({ranks, shortest(ranks, 10)});
        }
      });
}

Chart efficiency_chart(const ShownArms& shown) {
  constexpr static const char* unit = "% of the ideal";
  return scaling_chart(
      {.name = "efficiency",
       .title = "Scaling efficiency",
       .caption =
           "Speedup as a share of the ideal, the dashed line; whiskers: 95 % interval. Above 100 % "
           "look at the reference."},
      shown, unit, &ScalingPoint::efficiency, 100, [](Plot& plot, Chart& chart) {
        plot.y = {.title = unit,
                  .begin = std::max(0.0, 10 * std::floor(least_of(plot) / 10 - 1)),
                  .end = 1.02 * axis_end(figures_of(plot), 100)};
        if (plot.y.begin > 0) {
          chart.caption += " The axis begins at " + shortest(plot.y.begin, 3) + " %.";
        }
        plot.rule = 100;
      });
}

Chart cost_chart(const ShownArms& shown) {
  Chart chart{.name = "cost",
              .title = titled("Time against cost", shown),
              .caption = "Geometric means; the table has their intervals."};
  chart.table.columns = {{"arm"}, {"hours [95 %]", true}, {"cost [95 %]", true}, {"n", true}};
  Plot plot{.x = {.title = "hours"}, .y = {.title = "cost"}};
  double longest = 0, dearest = 0;
  size_t left_out = shown.left_out;
  for (const ShownArm& arm : shown.arms) {
    const SideSummary time = summary_of_arm(*arm.arm, metric_from(to_string(CostFigure::hours)));
    const SideSummary cost = summary_of_arm(*arm.arm, metric_from(to_string(CostFigure::cost)));
    if (!time.geometric_mean || !cost.geometric_mean) continue;
    chart.table.rows.push_back({arm.label(), estimate_text(time.mean()), estimate_text(cost.mean()),
                                std::to_string(time.runs)});
    if (plot.series.size() == most_arms) {
      ++left_out;
      continue;
    }
    plot.series.push_back({.title = arm.label(),
                           .colour = plot.series.size(),
                           .kind = arm.kind,
                           .marks = {{*time.geometric_mean, *cost.geometric_mean}}});
    longest = std::max(longest, *time.geometric_mean);
    dearest = std::max(dearest, *cost.geometric_mean);
  }
  if (chart.table.rows.empty()) return missing_chart(std::move(chart), "no arm has both");
  chart.caption += counts_text(chart.table) + left_out_text(left_out);
  plot.x.end = 1.1 * longest;
  plot.y.end = 1.1 * dearest;
  chart.plots = {std::move(plot)};
  return chart;
}

TextTable run_order_table(const RunSet& set) {
  TextTable table;
  table.columns = {{"arm"},          {"n", true},   {"min", true},
                   {"median", true}, {"max", true}, {"runs, the first one first"}};
  for (const RunArm& arm : set.arms) {
    const std::vector<double> values = throughputs_of(runs_in_order(arm));
    if (values.size() < 2) continue;
    const auto texts = transformed(values, [](double value) { return significant(value); });
    const auto [least, most] = std::ranges::minmax(values);
    table.rows.push_back({arm.name, std::to_string(values.size()), significant(least),
                          significant(median(values)), significant(most),
                          joined_first(most_listed, texts, " ")});
  }
  return table;
}

Chart run_order_chart(const ShownArms& shown) {
  Chart chart{.name = "runs",
              .title = titled("Runs over time", shown),
              .caption =
                  "Throughput of each complete run against the median of its arm, in the "
                  "order of their start; the table has the least, the median and the "
                  "largest."};
  Plot plot{.x = {.title = "run"}, .y = {.title = "% of the median"}, .rule = 0};
  double lowest = 0, highest = 0, longest = 0;
  for (const ShownArm& arm : shown.arms) {
    const SomeRuns runs = runs_in_order(*arm.arm);
    if (runs.size() < 2 || plot.series.size() == most_arms) continue;
    Series series{
        .title = arm.label(), .look = Look::joined, .colour = plot.series.size(), .kind = arm.kind};
    const double middle = median(throughputs_of(runs));
    for (const SetRun* run : runs) {
      const double percent = 100 * (*run->run.throughput / middle - 1);
      lowest = std::min(lowest, percent);
      highest = std::max(highest, percent);
      series.marks.push_back(
          {static_cast<double>(series.marks.size() + 1), percent, {}, run->run.started_at});
    }
    longest = std::max(longest, static_cast<double>(runs.size()));
    plot.series.push_back(std::move(series));
  }
  if (plot.series.empty()) {
    return missing_chart(std::move(chart), "no arm has several complete runs");
  }
  const double range = std::max(highest - lowest, 0.01);
  plot.x.end = longest + 1;
  plot.x.ticks = whole_ticks(1, longest);
  plot.y.begin = lowest - 0.1 * range;
  plot.y.end = highest + 0.1 * range;
  chart.plots = {std::move(plot)};
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
    out << ',' << csv_cell(arm.name);
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
