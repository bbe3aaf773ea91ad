#include <algorithm>
#include <sstream>

#include "reports/compare/scaling.h"
#include "reports/formats/charts/charts.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

struct Speedups {
  std::ostringstream csv = csv_with("arm,kind,scaling,against,ranks,beside,speedup,lower,upper");
  TextTable table;
  std::vector<std::pair<Kind, std::string>> looks;  // of each point, with its title
  std::vector<std::pair<std::string, std::string>> counts;
  int64_t most_ranks = 0;
  double largest = 0;  // of the points
  double largest_whisker = 0;
};

struct ShownPoint {
  ScalingPoint point;
  std::string side;
};

std::vector<ShownPoint> shown_points(const ShownArms& shown) {
  std::vector<ShownPoint> points;
  for (size_t side = 0; side < shown.sets.size(); ++side) {
    for (const ScalingPoint& point : scaling_of(*shown.sets[side])) {
      if (points.size() < most_rows) points.push_back({point, shown.sides[side]});
    }
  }
  return points;
}

std::string speedup_text(const ScalingPoint& point) {
  if (point.is_reference()) return "-";
  return point.speedup_interval ? with_interval(point.speedup, *point.speedup_interval)
                                : significant(point.speedup);
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

void add_point(Speedups& speedups, const ShownPoint& shown, double beside) {
  const ScalingPoint& point = shown.point;
  const Interval whisker =
      point.speedup_interval ? *point.speedup_interval : Interval{point.speedup, point.speedup};
  const std::string label = labelled(point.arm, shown.side);
  const std::string against = point.is_reference() ? ": reference" : ", against " + point.reference;
  speedups.csv << quoted_label(label) << ',' << to_string(point.kind) << ','
               << to_string(point.scaling) << ',' << quoted_label(point.reference) << ','
               << point.ranks << ',' << beside << ',' << point.speedup << ',' << whisker.lower
               << ',' << whisker.upper << '\n';
  speedups.looks.emplace_back(
      point.kind,
      label + against +
          (point.kind == Kind::measured ? "" : std::string(", ") + to_string(point.kind)));
  speedups.counts.emplace_back(label, std::to_string(point.runs));
  speedups.table.rows.push_back({label, std::to_string(point.ranks), point.against,
                                 speedup_text(point), speedups.counts.back().second,
                                 scaling_text(point)});
  speedups.most_ranks = std::max(speedups.most_ranks, point.ranks);
  speedups.largest = std::max(speedups.largest, point.speedup);
  speedups.largest_whisker = std::max(speedups.largest_whisker, whisker.upper);
}

std::string script_of(const Speedups& speedups) {
  const double most = 1.08 * static_cast<double>(speedups.most_ranks);
  const auto [end, cuts] = axis_end(std::max(most, speedups.largest), speedups.largest_whisker);
  constexpr int key_line_height = 18;
  std::string script = chart_head(320 + key_line_height * static_cast<int>(speedups.looks.size()) +
                                  (cuts ? height_of_note : 0)) +
                       "set xrange [0:" + plain_number(most) +
                       "]\nset yrange [0:" + (cuts ? plain_number(end) : "*") + "]\nset ytics " +
                       plain_number(tick_step(end, 8)) +
                       "\nset xlabel 'ranks'\nset ylabel 'speedup'\nset grid ls 1\n"
                       "set key on above vertical maxcols 1 Left reverse samplen 1.5\n" +
                       (speedups.most_ranks <= 16 ? "set xtics 1\n" : "") + (cuts ? cut_note : "") +
                       definition_of_drawn(end) +
                       "plot x with lines dt 2 lw 1.5 lc rgb 'black' title 'ideal'";
  const std::string ranks = "(column('ranks') + " +
                            plain_number(0.025 * static_cast<double>(speedups.most_ranks)) +
                            " * column('beside'))";
  for (size_t i = 0; i < speedups.looks.size(); ++i) {
    const auto& [kind, title] = speedups.looks[i];
    const std::string row = "$data every ::" + std::to_string(i) + "::" + std::to_string(i);
    // Vectors draw the whiskers: gnuplot's own come with a white spot behind each point.
    script += ", \\\n  " + row + " using " + ranks +
              ":'lower':(0):(drawn(column('upper')) - column('lower')) with vectors heads size "
              "screen 0.01,90 lw 1.5 lc rgb '" +
              colour(i) + "' notitle, \\\n  " + row + " using " + ranks +
              ":'speedup' with points " + point(kind, colour(i)) + " title " + quoted_label(title);
  }
  return script + "\n";
}

}  // namespace

Chart speedup_chart(const ShownArms& shown) {
  Chart chart{.name = "speedup", .title = "Speedup"};
  Speedups speedups;
  speedups.table.columns = {{"arm"},     {"ranks", true},   {"against"}, {"speedup [95 %]", true},
                            {"n", true}, {"scaling, batch"}};
  const std::vector<ShownPoint> points = shown_points(shown);
  for (size_t i = 0; i < points.size(); ++i) add_point(speedups, points[i], beside(points, i));
  if (speedups.counts.empty()) return missing_chart(chart, one_number_of_ranks);
  chart.caption =
      "Throughput against that of the reference, the arm with the fewest ranks, times its ranks; "
      "weak scaling: the same batch on each rank, strong: in all; dashed: ideal, which is where "
      "a reference is drawn; whiskers: 95 % interval, which takes 2 runs of both. "
      "Points of equal ranks are drawn side by side." +
      counts_text(speedups.counts);
  chart.csv = speedups.csv.str();
  chart.script = script_of(speedups);
  chart.table = speedups.table;
  return chart;
}

}  // namespace nearmetal
