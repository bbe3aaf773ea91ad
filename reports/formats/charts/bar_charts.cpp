#include <algorithm>

#include "reports/compare/comparison_row.h"
#include "reports/compare/scaling.h"
#include "reports/formats/charts/chart.h"
#include "reports/formats/charts/charts.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

std::vector<double> complete_values(const RunArm& arm, const Metric& metric) {
  std::vector<double> values;
  for (const SetRun& run : arm.runs) {
    const Maybe<double> value = metric.value_of(run.run);
    if (run.run.status == Status::complete && value) values.push_back(*value);
  }
  return values;
}

const UnitWords& words_of(const ShownArms& shown) {
  std::vector<SampleUnit> units;
  for (const ShownArm& arm : shown.arms) units.push_back(unit_of(*arm.arm));
  return words_of(units);
}

Maybe<Interval> in_percent(const Maybe<Interval>& share) {
  if (!share) return Unknown{share.reason};
  return Interval{100 * share->lower, 100 * share->upper};
}

std::string percent_text(const ScalingPoint& point) {
  const Maybe<Interval> percent = in_percent(point.efficiency_interval);
  return percent ? with_interval(100 * point.efficiency, *percent)
                 : significant(100 * point.efficiency);
}

}  // namespace

Chart throughput_chart(const ShownArms& shown) {
  const UnitWords& words = words_of(shown);
  Chart chart{.name = "throughput", .title = "Throughput"};
  chart.table.columns = {
      {"arm"}, {std::string(words.rate) + " [95 %]", true}, {"n", true}, {"kind"}};
  Bars bars{.rows = shown.rows, .sides = shown.sides, .axis = words.rate};
  std::vector<std::pair<std::string, std::string>> counts;
  for (const ShownArm& arm : shown.arms) {
    const Metric& metric = throughput_metric(unit_of(*arm.arm));
    const SideSummary side = summary_of_arm(*arm.arm, metric);
    if (!side.geometric_mean) continue;
    bars.bars.push_back({arm.label(), arm.row, arm.side_index, arm.kind, *side.geometric_mean,
                         side.interval, complete_values(*arm.arm, metric)});
    counts.emplace_back(arm.label(), std::to_string(side.runs));
    chart.table.rows.push_back(
        {arm.label(), mean_text(side, metric), counts.back().second, to_string(arm.kind)});
  }
  if (bars.bars.empty()) {
    chart.missing = "no run is complete";
    return chart;
  }
  chart.caption =
      "Geometric mean of runs; whiskers: its 95 % interval, none for one run; circles: runs." +
      counts_text(counts) + left_out_text(shown.left_out);
  chart.csv = csv_of(bars);
  chart.script = script_of(bars);
  return chart;
}

Chart efficiency_chart(const ShownArms& shown) {
  Chart chart{.name = "efficiency", .title = "Scaling efficiency"};
  chart.table.columns = {{"arm"},     {"ranks", true},
                         {"against"}, {"% of the ideal [95 %]", true},
                         {"n", true}, {"scaling, batch"}};
  Bars bars{.sides = shown.sides, .axis = "% of the ideal", .line = 100};
  std::vector<std::pair<std::string, std::string>> counts;
  for (size_t side = 0; side < shown.sets.size(); ++side) {
    for (const ScalingPoint& point : scaling_of(*shown.sets[side])) {
      if (point.arm == point.reference || counts.size() == most_rows) continue;
      const std::string label = labelled(point.arm, shown.sides[side]);
      auto row = std::ranges::find(bars.rows, point.arm);
      if (row == bars.rows.end()) row = bars.rows.insert(row, point.arm);
      bars.bars.push_back({label,
                           static_cast<size_t>(row - bars.rows.begin()),
                           side,
                           point.kind,
                           100 * point.efficiency,
                           in_percent(point.efficiency_interval),
                           {}});
      counts.emplace_back(label, std::to_string(point.runs));
      chart.table.rows.push_back({label, std::to_string(point.ranks), point.reference,
                                  percent_text(point), counts.back().second, scaling_text(point)});
    }
  }
  if (bars.bars.empty()) {
    chart.missing = one_number_of_ranks;
    return chart;
  }
  chart.caption =
      "Speedup as a share of the ideal, the dashed line; whiskers: 95 % interval. Above 100 % look "
      "at what it is held against." +
      counts_text(counts);
  chart.csv = csv_of(bars);
  chart.script = script_of(bars);
  return chart;
}

}  // namespace nearmetal
