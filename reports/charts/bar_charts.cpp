#include <algorithm>
#include <array>
#include <set>
#include <sstream>

#include "reports/charts/charts.h"
#include "reports/comparison_row.h"
#include "reports/comparison_text.h"
#include "reports/fractions.h"
#include "reports/scaling.h"
#include "reports/text.h"

namespace nearmetal {
namespace {

struct Bar {
  std::string label;
  size_t row = 0;
  size_t side = 0;
  Kind kind = Kind::measured;
  double value = 0;
  Maybe<Interval> whisker;
  std::vector<double> circles;
};

struct Bars {
  std::vector<std::string> rows{};
  std::vector<std::string> sides{};
  std::string axis{};           // title of the values
  std::string more_settings{};  // of gnuplot
  std::vector<Bar> bars{};
};

// Bars of a row stand beside each other, one for each side.
std::string csv_of(const Bars& bars) {
  std::ostringstream csv;
  csv.precision(10);
  csv << "position,half_height,label,side,kind,mark,value,lower,upper\n";
  const double half_height = 0.38 / static_cast<double>(bars.sides.size());
  for (const Bar& bar : bars.bars) {
    const double position =
        static_cast<double>(bar.row) - 0.38 + half_height * static_cast<double>(2 * bar.side + 1);
    const auto add = [&](const char* mark, double value, const Interval& whisker) {
      csv << position << ',' << 0.9 * half_height << ',' << quoted_label(bar.label) << ','
          << bar.side << ',' << to_string(bar.kind) << ',' << mark << ',' << value << ','
          << whisker.lower << ',' << whisker.upper << '\n';
    };
    add("bar", bar.value, bar.whisker ? *bar.whisker : Interval{bar.value, bar.value});
    for (const double circle : bar.circles) add("run", circle, {circle, circle});
  }
  return csv.str();
}

// One element of the plot for each side and kind that occur, so that the key names no other.
std::string script_of(const Bars& bars) {
  std::set<std::pair<size_t, Kind>> looks;
  for (const Bar& bar : bars.bars) looks.insert({bar.side, bar.kind});
  std::string plots;
  for (const auto& [side, kind] : looks) {
    const std::string& name = bars.sides[side];
    plots += "$data using (strcol('mark') eq 'bar' && column('side') == " + std::to_string(side) +
             " && strcol('kind') eq '" + to_string(kind) +
             "' ? column('value') / 2 : NaN):'position':(column('value') / 2):'half_height' "
             "with boxxy " +
             fill(kind, colour(side)) + " title '" + name + (name.empty() ? "" : ", ") +
             to_string(kind) + "', \\\n  ";
  }
  double most = 0;
  for (const Bar& bar : bars.bars) {
    most = std::max({most, bar.value, bar.whisker ? bar.whisker->upper : 0});
  }
  return chart_head(height_of_rows(bars.rows.size() * (bars.sides.size() + 1) / 2)) +
         row_axis(bars.rows) + "set xrange [0:*]\nset xtics " + plain_number(tick_step(most, 5)) +
         "\nset xlabel '" + bars.axis +
         "'\nset grid xtics ls 1\nset key on above right horizontal Left reverse samplen 1.5\n" +
         bars.more_settings + "plot " + plots +
         "$data using (strcol('mark') eq 'bar' && column('upper') > column('lower') ? "
         "column('value') : NaN):'position':'lower':'upper' with xerrorbars pt 0 lw 1.5 "
         "lc rgb 'black' notitle, \\\n  "
         "$data using (strcol('mark') eq 'run' ? column('value') : NaN):'position' with points "
         "pt 6 ps 0.5 lc rgb 'black' notitle\n";
}

std::vector<double> complete_values(const RunArm& arm, const Metric& metric) {
  std::vector<double> values;
  for (const SetRun& run : arm.runs) {
    const Maybe<double> value = metric.value_of(run.run);
    if (run.run.status == Status::complete && value) values.push_back(*value);
  }
  return values;
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
  const Metric& metric = all_metrics().front();
  Chart chart{.name = "throughput", .title = "Throughput"};
  chart.table.columns = {{"arm"}, {"images/s [95 %]", true}, {"n", true}, {"kind"}};
  Bars bars{.rows = shown.rows, .sides = shown.sides, .axis = "images/s"};
  std::vector<std::pair<std::string, std::string>> counts;
  for (const ShownArm& arm : shown.arms) {
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
      counts_text(counts) + left_out_text(shown);
  chart.csv = csv_of(bars);
  chart.script = script_of(bars);
  return chart;
}

namespace {

// Bars of two ratios for each arm that has one of them.
struct RatioBars {
  const char* axis;
  const char* missing;
  std::array<const char*, 2> sides;
  std::array<Maybe<SpeedRatio> FractionPoint::*, 2> ratios;
};

Chart ratio_chart(Chart chart, const RunSet& set, const RatioBars& wanted) {
  chart.table.columns = {{"arm"}, {wanted.sides[0], true}, {wanted.sides[1], true}, {"n", true}};
  Bars bars{.sides = {wanted.sides[0], wanted.sides[1]},
            .axis = wanted.axis,
            .more_settings =
                "set arrow 1 from first 1, graph 0 to first 1, graph 1 nohead "
                "dt 2 lw 1.5 lc rgb 'black' front\n"};
  std::vector<std::pair<std::string, std::string>> counts;
  for (const FractionPoint& point : fractions_of(set)) {
    if (!(point.*wanted.ratios[0]) && !(point.*wanted.ratios[1])) continue;
    std::vector<std::string> cells = {point.arm};
    for (size_t side = 0; side < wanted.sides.size(); ++side) {
      const Maybe<SpeedRatio>& ratio = point.*wanted.ratios[side];
      cells.push_back(ratio ? significant(ratio->value) : "-");
      if (!ratio) continue;
      bars.bars.push_back(
          {point.arm, bars.rows.size(), side, Kind::measured, ratio->value, ratio->interval, {}});
    }
    bars.rows.push_back(point.arm);
    counts.emplace_back(point.arm, std::to_string(point.runs));
    cells.push_back(counts.back().second);
    chart.table.rows.push_back(cells);
  }
  if (bars.bars.empty()) {
    chart.missing = wanted.missing;
    return chart;
  }
  chart.caption += counts_text(counts);
  chart.csv = csv_of(bars);
  chart.script = script_of(bars);
  return chart;
}

}  // namespace

Chart sharing_chart(const RunSet& set) {
  return ratio_chart(
      {.name = "sharing",
       .title = "What sharing gains",
       .caption = "Throughput of all jobs over that of as many one after another, and in time "
                  "slices; whiskers: 95 % interval."},
      set,
      {"times as fast",
       "no jobs ran one after another or in time slices",
       {"against one after another", "against time slices"},
       {&FractionPoint::of_serial, &FractionPoint::of_timeslice}});
}

Chart slowdown_chart(const RunSet& set) {
  return ratio_chart(
      {.name = "slowdown",
       .title = "What sharing costs a job",
       .caption =
           "How many times as long a job takes as alone on the whole GPU, and as alone on the "
           "same share of it, which is what its neighbours cost; whiskers: 95 % interval."},
      set,
      {"times as long",
       "no job ran alone",
       {"against alone on the GPU", "against alone on the share"},
       {&FractionPoint::slowdown, &FractionPoint::interference}});
}

Chart efficiency_chart(const ShownArms& shown) {
  Chart chart{.name = "efficiency", .title = "Scaling efficiency"};
  chart.table.columns = {{"arm"},     {"ranks", true},
                         {"against"}, {"% of the ideal [95 %]", true},
                         {"n", true}, {"scaling, batch"}};
  Bars bars{.sides = shown.sides,
            .axis = "% of the ideal",
            .more_settings =
                "set arrow 1 from first 100, graph 0 to first 100, graph 1 nohead "
                "dt 2 lw 1.5 lc rgb 'black' front\n"};
  std::vector<std::pair<std::string, std::string>> counts;
  for (size_t side = 0; side < shown.sets.size(); ++side) {
    for (const ScalingPoint& point : scaling_of(*shown.sets[side])) {
      if (point.arm == point.reference || counts.size() == most_rows) continue;
      const std::string label = labelled(point.arm, shown.sides[side]);
      auto row = std::find(bars.rows.begin(), bars.rows.end(), point.arm);
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
