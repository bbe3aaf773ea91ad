#include "reports/formats/charts/scaling_charts.h"

#include <algorithm>

#include "reports/compare/comparison_row.h"
#include "reports/compare/scaling.h"
#include "reports/document/metric.h"

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
  std::vector<SampleUnit> units;
  for (const ShownArm& arm : shown.arms) units.push_back(unit_of(*arm.arm));
  return words_of(units);
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
  double most_ranks = 0, largest = 0, largest_whisker = 0;
  for (const auto& [point, side, label] : points) {
    most_ranks = std::max(most_ranks, static_cast<double>(point.ranks));
    largest = std::max(largest, point.speedup.value);
    largest_whisker = std::max(largest_whisker, whisker_of(point.speedup).upper);
  }
  const double most = 1.08 * most_ranks;
  const AxisEnd end = axis_end(std::max(most, largest), largest_whisker);
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
    auto row = std::ranges::find(bars.rows, name);
    if (row == bars.rows.end()) row = bars.rows.insert(row, name);
    bars.bars.push_back({labelled(name, shown.sides[side]),
                         static_cast<size_t>(row - bars.rows.begin()), side, point.kind,
                         100 * point.efficiency});
  }
  describe(chart, points, bars.axis.c_str(), &ScalingPoint::efficiency, 100);
  return bar_chart(std::move(chart), bars, one_number_of_ranks);
}

}  // namespace nearmetal
