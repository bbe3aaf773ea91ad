#include <algorithm>
#include <map>
#include <sstream>

#include "reports/compare/scaling.h"
#include "reports/formats/charts/charts.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

struct ShownGroup {
  size_t index = 0;  // in the data
  std::string title;
};

struct Speedups {
  std::ostringstream csv = csv_with("group,arm,kind,scaling,ranks,speedup,lower,upper");
  TextTable table;
  std::map<std::string, ShownGroup> groups;  // arms held against the same reference in the same way
  std::map<std::pair<size_t, Kind>, std::string> looks;
  std::vector<std::pair<std::string, std::string>> counts;
  int64_t most_ranks = 0;
  double largest = 0;  // of the points
  double largest_whisker = 0;
};

std::string speedup_text(const ScalingPoint& point) {
  return point.speedup_interval ? with_interval(point.speedup, *point.speedup_interval)
                                : significant(point.speedup);
}

void add_point(Speedups& speedups, const ScalingPoint& point, const std::string& side) {
  const std::string title =
      labelled(point.reference, side) + "; " + to_string(point.scaling) + " scaling";
  const ShownGroup group =
      speedups.groups.emplace(title, ShownGroup{speedups.groups.size(), title}).first->second;
  const Interval whisker =
      point.speedup_interval ? *point.speedup_interval : Interval{point.speedup, point.speedup};
  const std::string label = labelled(point.arm, side);
  speedups.csv << group.index << ',' << quoted_label(label) << ',' << to_string(point.kind) << ','
               << to_string(point.scaling) << ',' << point.ranks << ',' << point.speedup << ','
               << whisker.lower << ',' << whisker.upper << '\n';
  speedups.looks.emplace(std::pair(group.index, point.kind),
                         group.title + "; " + to_string(point.kind));
  speedups.counts.emplace_back(label, std::to_string(point.runs));
  speedups.table.rows.push_back({label, std::to_string(point.ranks), point.reference,
                                 speedup_text(point), speedups.counts.back().second,
                                 scaling_text(point)});
  speedups.most_ranks = std::max(speedups.most_ranks, point.ranks);
  speedups.largest = std::max(speedups.largest, point.speedup);
  speedups.largest_whisker = std::max(speedups.largest_whisker, whisker.upper);
}

std::string script_of(const Speedups& speedups) {
  const double most = 1.08 * static_cast<double>(speedups.most_ranks);
  const auto [end, cuts] = axis_end(std::max(most, speedups.largest), speedups.largest_whisker);
  std::string script = chart_head(340 + (cuts ? height_of_note : 0)) +
                       "set xrange [0:" + plain_number(most) +
                       "]\nset yrange [0:" + (cuts ? plain_number(end) : "*") + "]\nset ytics " +
                       plain_number(tick_step(end, 8)) + "\n" +
                       "set xlabel 'ranks'\nset ylabel 'speedup'\nset grid ls 1\n"
                       "set key on above vertical maxcols 1 Left reverse samplen 1.5\n" +
                       (speedups.most_ranks <= 16 ? "set xtics 1\n" : "") + (cuts ? cut_note : "") +
                       "plot x with lines dt 2 lw 1.5 lc rgb 'black' title 'ideal'";
  // Points of equal height would hide each other.
  const double beside = 0.015 * static_cast<double>(speedups.most_ranks);
  for (const auto& [look, title] : speedups.looks) {
    const auto& [group, kind] = look;
    const std::string is_shown = "column('group') == " + std::to_string(group) +
                                 " && strcol('kind') eq '" + to_string(kind) + "'";
    const std::string ranks =
        "column('ranks') + " + plain_number(beside * static_cast<double>(group));
    // As vectors: gnuplot's own whiskers come with a white spot behind each point.
    script += ", \\\n  $data using (" + is_shown + " && column('upper') > column('lower') ? " +
              ranks +
              " : NaN):'lower':(0):(column('upper') - column('lower')) with vectors heads size "
              "screen 0.01,90 lw 1.5 lc rgb '" +
              colour(group) + "' notitle, \\\n  $data using (" + is_shown + " ? " + ranks +
              " : NaN):'speedup' with points " + point(kind, colour(group)) + " title " +
              quoted_label(title);
  }
  return script + "\n";
}

}  // namespace

Chart speedup_chart(const ShownArms& shown) {
  Chart chart{.name = "speedup", .title = "Speedup"};
  Speedups speedups;
  speedups.table.columns = {{"arm"},     {"ranks", true},   {"against"}, {"speedup [95 %]", true},
                            {"n", true}, {"scaling, batch"}};
  for (size_t side = 0; side < shown.sets.size(); ++side) {
    for (const ScalingPoint& point : scaling_of(*shown.sets[side])) {
      if (speedups.counts.size() < most_rows) add_point(speedups, point, shown.sides[side]);
    }
  }
  if (speedups.counts.empty()) return missing_chart(chart, one_number_of_ranks);
  chart.caption =
      "Throughput against that of the arm with the fewest ranks, named above, times its ranks; "
      "weak scaling: the same batch on each rank, strong: in all; dashed: ideal; whiskers: 95 % "
      "interval, which takes 2 runs of both. Points of equal ranks "
      "stand side by side." +
      counts_text(speedups.counts);
  chart.csv = speedups.csv.str();
  chart.script = script_of(speedups);
  chart.table = speedups.table;
  return chart;
}

}  // namespace nearmetal
