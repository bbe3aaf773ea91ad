#include <algorithm>
#include <cmath>
#include <functional>

#include "reports/compare/comparison_row.h"
#include "reports/compare/grid_curves.h"
#include "reports/formats/charts/chart.h"
#include "reports/formats/charts/charts.h"
#include "reports/sharing/arm_figures.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

constexpr size_t most_curves = 8;  // as there are colours
constexpr size_t most_labels = 8;  // along an axis

struct Figure {
  double value = 0;
  Maybe<Interval> interval{};
};

struct FigureOverSettings {
  std::string name;   // of files
  std::string title;  // "Throughput"
  std::string axis;
  std::string caption;
  const char* missing;  // what to say where no arm has it
  bool marks_knee = false;
  std::function<Maybe<Figure>(const RunArm& arm)> value_of;
};

struct PlacedPoint {
  size_t curve = 0;
  const CurvePoint* point = nullptr;
  double position = 0;
  Figure figure{};
  bool is_knee = false;
};

Maybe<Figure> throughput_of(const RunArm& arm) {
  const SideSummary side = summary_of_arm(arm, throughput_metric(unit_of(arm)));
  if (!side.geometric_mean) return Unknown{side.geometric_mean.reason};
  return Figure{*side.geometric_mean, side.interval};
}

Maybe<Figure> without_interval(const Maybe<double>& value, double scale = 1) {
  if (!value) return Unknown{value.reason};
  return Figure{scale * *value, Unknown{"not of several runs"}};
}

std::vector<FigureOverSettings> figures(const RunSet& set) {
  const UnitWords& words = words_of(units_of(set));
  return {
      {"throughput", "Throughput", words.rate,
       "Geometric mean of runs; whiskers: its 95 % interval, none for one run.",
       "no run is complete", true, throughput_of},
      {"energy", std::string("How many ") + words.plural + " for a joule", words.per_joule,
       "Throughput over the mean power of the GPUs.", "power is not known", false,
       [&set](const RunArm& arm) {
         Maybe<Figure> throughput = throughput_of(arm);
         if (!throughput) return throughput;
         return without_interval(samples_per_joule(set, arm, throughput->value));
       }},
      {"memory", "Memory", "GB", "Peak use of a GPU's memory.", "memory is not known", false,
       [](const RunArm& arm) { return without_interval(memory_of(arm), 1e-9); }},
  };
}

// Words stand at 0, 1, ...; those of several curves side by side, as points of equal height would
// hide each other.
std::vector<PlacedPoint> placed_points(const std::vector<GridCurve>& curves,
                                       const std::vector<std::string>& values,
                                       const FigureOverSettings& shown) {
  std::vector<PlacedPoint> points;
  const auto count = static_cast<double>(curves.size());
  for (size_t i = 0; i < curves.size(); ++i) {
    const std::optional<Knee> knee = shown.marks_knee ? knee_of(curves[i]) : std::nullopt;
    for (const CurvePoint& point : curves[i].points) {
      const Maybe<Figure> figure = shown.value_of(*point.arm);
      if (!figure) continue;
      const double place =
          static_cast<double>(std::ranges::find(values, point.value) - values.begin());
      const double beside = 0.6 / count * (static_cast<double>(i) - (count - 1) / 2);
      points.push_back({i, &point, point.number ? *point.number : place + beside, *figure,
                        knee && knee->point == &point});
    }
  }
  return points;
}

Interval whisker_of(const Figure& figure) {
  return figure.interval ? *figure.interval : Interval{figure.value, figure.value};
}

std::string csv_of(const std::vector<PlacedPoint>& points, const std::vector<GridCurve>& curves) {
  std::ostringstream csv = csv_with("arm,curve,setting,position,value,lower,upper,knee");
  for (const PlacedPoint& point : points) {
    const Interval whisker = whisker_of(point.figure);
    csv << quoted_label(point.point->arm->name) << ',' << quoted_label(curves[point.curve].others)
        << ',' << quoted_label(point.point->value) << ',' << point.position << ','
        << point.figure.value << ',' << whisker.lower << ',' << whisker.upper << ','
        << (point.is_knee ? 1 : 0) << '\n';
  }
  return csv.str();
}

// Values that double are as far from each other as their neighbours.
std::string number_axis(const std::vector<PlacedPoint>& points) {
  std::vector<double> places;
  for (const PlacedPoint& point : points) places.push_back(point.position);
  std::ranges::sort(places);
  places.erase(std::unique(places.begin(), places.end()), places.end());
  const double least = places.front(), most = places.back();
  const bool logarithmic = least > 0 && most >= 4 * least;
  const double margin = 0.04 * (most - least) + (most > least ? 0 : 1);
  const double factor = logarithmic ? std::pow(most / least, 0.04) : 1;
  std::string tics;
  for (size_t i = 0; i < places.size(); i += 1 + (places.size() - 1) / most_labels) {
    tics += (tics.empty() ? "" : ", ") + plain_number(places[i]);
  }
  const double start = logarithmic ? least / factor : least - margin;
  const double end = logarithmic ? most * factor : most + margin;
  return std::string(logarithmic ? "set logscale x 2\n" : "") + "set xrange [" +
         plain_number(start) + ":" + plain_number(end) + "]\nset xtics (" + tics + ")\n";
}

std::string word_axis(const std::vector<std::string>& values) {
  std::string tics;
  for (size_t i = 0; i < values.size(); ++i) {
    tics += (tics.empty() ? "" : ", ") + quoted_label(values[i]) + " " + std::to_string(i);
  }
  return "set xrange [-0.5:" + plain_number(static_cast<double>(values.size()) - 0.5) +
         "]\nset xtics (" + tics + ")\n";
}

// Its rows are neighbours.
std::string rows_of(const std::vector<PlacedPoint>& points, size_t curve) {
  const auto is_of = [&](const PlacedPoint& point) { return point.curve == curve; };
  const auto first = std::ranges::find_if(points, is_of);
  const auto count = std::ranges::count_if(points, is_of);
  if (count == 0) return "";
  const auto begin = first - points.begin();
  return "$data every ::" + std::to_string(begin) + "::" + std::to_string(begin + count - 1);
}

std::string plots_of(const std::vector<PlacedPoint>& points, const std::vector<GridCurve>& curves) {
  std::string plots;
  for (size_t i = 0; i < curves.size(); ++i) {
    const std::string rows = rows_of(points, i);
    if (rows.empty()) continue;
    const CurvePoint& first = curves[i].points.front();
    // Vectors draw the whiskers: gnuplot's own come with a white spot behind each point.
    plots += (plots.empty() ? "" : ", \\\n  ") + rows +
             " using 'position':'lower':(0):(drawn(column('upper')) - column('lower')) with "
             "vectors heads "
             "size screen 0.01,90 lw 1.5 lc rgb '" +
             colour(i) + "' notitle, \\\n  " + rows + " using 'position':'value' with " +
             (first.number ? "linespoints " : "points ") +
             point(first.arm->runs.front().kind, colour(i)) +
             (curves[i].others.empty() ? " notitle" : " title " + quoted_label(curves[i].others));
  }
  const bool knees = std::ranges::any_of(points, &PlacedPoint::is_knee);
  if (!knees) return plots;
  return plots +
         ", \\\n  $data using (column('knee') == 1 ? column('position') : NaN):'value' with points "
         "pt 6 ps 2 lw 1.5 lc rgb 'black' title 'smallest within " +
         plain_percent(1 - least_share_at_knee) + " of the best'";
}

std::string script_of(const std::vector<PlacedPoint>& points, const std::vector<GridCurve>& curves,
                      const std::vector<std::string>& values, const std::string& axis) {
  double largest = 0, largest_whisker = 0;
  for (const PlacedPoint& point : points) {
    largest = std::max(largest, point.figure.value);
    largest_whisker = std::max(largest_whisker, whisker_of(point.figure).upper);
  }
  const auto [end, cuts] = axis_end(largest, largest_whisker);
  constexpr int key_line_height = 18;
  const bool numbers = points.front().point->number.has_value();
  return chart_head(300 + key_line_height * static_cast<int>(curves.size() + 1) +
                    (cuts ? height_of_note : 0)) +
         (numbers ? number_axis(points) : word_axis(values)) +
         "set yrange [0:" + plain_number(1.05 * end) + "]\nset ytics " +
         plain_number(tick_step(1.05 * end, 6)) + "\nset xlabel " +
         quoted_label(curves.front().setting) + "\nset ylabel '" + axis +
         "'\nset grid ls 1\nset key on above vertical maxcols 1 Left reverse samplen 1.5\n" +
         (cuts ? cut_note : "") + definition_of_drawn(end) + "plot " + plots_of(points, curves) +
         "\n";
}

TextTable table_of(const std::vector<PlacedPoint>& points, const std::vector<GridCurve>& curves,
                   const FigureOverSettings& shown) {
  TextTable table{{{"arm"}, {curves.front().setting, true}, {shown.axis, true}, {"n", true}}, {}};
  if (shown.marks_knee) table.columns.push_back({"knee"});
  for (const PlacedPoint& point : points) {
    table.rows.push_back({point.point->arm->name, point.point->value,
                          estimate_text(point.figure.value, point.figure.interval),
                          std::to_string(timed_runs(*point.point->arm).size())});
    if (shown.marks_knee) table.rows.back().emplace_back(point.is_knee ? "knee" : "-");
  }
  return table;
}

// `curves`: those over one setting.
Chart curve_chart(std::vector<GridCurve> curves, const FigureOverSettings& shown) {
  const std::string setting = curves.front().setting;
  Chart chart{.name = shown.name + "_over_" + setting, .title = shown.title + " over " + setting};
  const size_t left_out = curves.size() > most_curves ? curves.size() - most_curves : 0;
  curves.resize(curves.size() - left_out);
  std::vector<std::string> values;
  std::vector<std::pair<std::string, std::string>> counts;
  for (const GridCurve& curve : curves) {
    for (const CurvePoint& point : curve.points) {
      if (std::ranges::find(values, point.value) == values.end()) values.push_back(point.value);
      counts.emplace_back(point.arm->name, std::to_string(timed_runs(*point.arm).size()));
    }
  }
  const std::vector<PlacedPoint> points = placed_points(curves, values, shown);
  if (points.empty()) {
    const std::string why = shown.value_of(*curves.front().points.front().arm).reason;
    return missing_chart(chart, std::string(shown.missing) + ": " + why);
  }
  chart.caption = shown.caption;
  if (std::ranges::any_of(points, &PlacedPoint::is_knee)) {
    chart.caption += " Ring: the smallest batch within " + plain_percent(1 - least_share_at_knee) +
                     " of the best throughput of its curve.";
  }
  chart.caption += counts_text(counts) + left_out_text(left_out);
  chart.csv = csv_of(points, curves);
  chart.script = script_of(points, curves, values, shown.axis);
  chart.table = table_of(points, curves, shown);
  return chart;
}

}  // namespace

std::vector<Chart> grid_charts(const RunSet& set) {
  const std::vector<GridCurve> all = grid_curves(set);
  std::vector<Chart> charts;
  for (auto first = all.begin(); first != all.end();) {
    const auto end = std::find_if(
        first, all.end(), [&](const GridCurve& curve) { return curve.setting != first->setting; });
    for (const FigureOverSettings& shown : figures(set)) {
      charts.push_back(curve_chart({first, end}, shown));
    }
    first = end;
  }
  return charts;
}

}  // namespace nearmetal
