#include "reports/formats/charts/charts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <set>

#include "reports/compare/comparison_row.h"
#include "reports/compare/scaling.h"
#include "reports/document/metric.h"
#include "reports/formats/charts/step_charts.h"
#include "reports/formats/charts/throughput_charts.h"
#include "reports/sharing/arm_figures.h"
#include "reports/sharing/fractions.h"

namespace nearmetal {
namespace {

constexpr double room_of_value = 0.2;  // behind the longest bar

// Behind what is drawn of it, and behind a line that is near.
double place_of_value(const Bar& bar, const Bars& bars) {
  double end = bar.figure.interval ? std::max(bar.figure.value, bar.figure.interval->upper)
                                   : bar.figure.value;
  for (const double circle : bar.circles) end = std::max(end, circle);
  const bool meets_line = bars.line && end < *bars.line && end > (1 - room_of_value) * *bars.line;
  return meets_line ? *bars.line : end;
}

double end_of(const Bars& bars) {
  std::vector<Estimate> figures;
  for (const Bar& bar : bars.bars) {
    figures.push_back(bar.figure);
    for (const double circle : bar.circles) figures.push_back({circle});
  }
  return axis_end(figures, bars.line.value_or(0));
}

void add_arm(ShownArms& shown, const std::string& name, const RunArm* arm, size_t side) {
  if (arm == nullptr || arm->runs.empty()) return;
  const std::string side_name = shown.sides.size() > 1 ? shown.sides[side] : "";
  shown.arms.push_back({name, side_name, shown.rows.size() - 1, side, arm->runs.front().kind, arm});
}

// A row for each name of an arm.
ShownArms arms_of(const Sides& sides) {
  ShownArms shown;
  std::vector<std::string> names;
  for (const auto& [name, set] : sides) {
    shown.sides.push_back(name);
    shown.sets.push_back(set);
    for (const RunArm& arm : set->arms) add_new(names, arm.name);
  }
  for (const std::string& name : names) {
    if (shown.rows.size() == most_rows) break;
    shown.rows.push_back(name);
    for (size_t side = 0; side < sides.size(); ++side) {
      add_arm(shown, name, arm_named(name, *shown.sets[side]), side);
    }
  }
  shown.left_out = names.size() - shown.rows.size();
  return shown;
}

// Of colour(), by Verdict.
constexpr std::array<size_t, 7> verdict_colours = {1, 1, 4, 1, 2, 2, 2};
static_assert(verdict_colours.size() == names_of(Verdict{}).size());

// The difference of each row, with the interval that the verdict rests on, and the margin.
Chart difference_chart(const Comparison& comparison) {
  const SideWords words = words_of(comparison.options);
  Chart chart{
      .name = "difference",
      .title = std::string("Difference: ") + words.new_title + " against " + words.base_title};
  std::vector<std::string> rows;
  TextTable counts{.columns = {{"row"}, {"n"}}};
  const DecisionRule& rule = comparison.options.rule;
  const double margin = log_margin(rule);
  double least = 100 * std::expm1(margin);
  double most = -least;
  Plot plot{.rows = true,
            .rule = 0,
            .band = Interval{100 * std::expm1(margin), 100 * std::expm1(-margin)}};
  Series values{.look = Look::labels};
  const bool several = comparison.options.metrics.size() > 1;
  for (const ComparisonRow& row : comparison.rows) {
    if (!row.difference_interval || rows.size() == most_rows) continue;
    const Interval percent{100 * row.difference_interval->lower,
                           std::min(1e6, 100 * row.difference_interval->upper)};
    const std::string name = title_of(row) + (several ? " " + row.metric : "");
    const auto y = static_cast<double>(rows.size());
    const double value = 100 * *row.difference;
    plot.series.push_back({.colour = verdict_colours.at(static_cast<size_t>(row.verdict)),
                           .marks = {{value, y, percent, to_string(row.verdict)}}});
    values.marks.push_back(
        {percent.upper, y, {}, signed_percents(*row.difference, *row.difference_interval).first});
    rows.push_back(name);
    counts.rows.push_back(
        {name, std::to_string(row.base_side.runs) + "|" + std::to_string(row.new_side.runs)});
    least = std::min(least, percent.lower);
    most = std::max(most, percent.upper);
  }
  if (rows.empty())
    return missing_chart(chart, "no row has an interval, which takes 2 runs a side that vary");
  const double space = 0.08 * (most - least);
  chart.caption = "Difference of the geometric means, with the " +
                  plain_percent(1 - 2 * rule.alpha) + " interval that the verdict rests on" +
                  (rule.margin > 0 ? "; grey: the margin of " + plain_percent(rule.margin) : "") +
                  "." + counts_text(counts);
  plot.x = {.title = "difference, %", .begin = least - space, .end = most + 3 * space};
  plot.y = row_axis(rows);
  plot.height = height_of_rows(rows.size());
  plot.series.push_back(std::move(values));
  chart.plots = {std::move(plot)};
  return chart;
}

// Numbers that double are as far from each other as their neighbours; words stand at 0, 1, ...
Axis axis_of(const std::string& setting, const std::set<double>& numbers,
             const std::vector<std::string>& words) {
  Axis axis{.title = setting};
  if (numbers.empty()) {
    axis.begin = -0.5;
    axis.end = static_cast<double>(words.size()) - 0.5;
    axis.ticks = row_axis(words).ticks;
    return axis;
  }
  for (const double number : numbers) axis.ticks.push_back({number, shortest(number, 10)});
  const double least = *numbers.begin(), most = *numbers.rbegin();
  axis.log2 = least > 0 && most >= 4 * least;
  const double margin = 0.04 * (most - least) + (most > least ? 0 : 1);
  const double factor = axis.log2 ? std::pow(most / least, 0.04) : 1;
  axis.begin = axis.log2 ? least / factor : least - margin;
  axis.end = axis.log2 ? most * factor : most + margin;
  return axis;
}

std::string why_unknown(const char* what, const Maybe<double>& figure) {
  return figure ? "" : std::string(" ") + what + " is not known: " + figure.reason + ".";
}

// The curves over one setting, as they are added to a chart.
struct CurvesOfGrid {
  const RunSet& set;
  std::vector<std::string> values{};  // of the setting, each once
  Plot plot{};
  Series knees{};
  TextTable table{};  // with what points take beside time
  std::vector<Estimate> figures{};
  std::set<double> numbers{};  // the values, where they are some
  std::string gaps{};          // why figures of the first point are unknown

  // Words stand this far beside their place, as points of equal height would hide each other.
  void add(const GridCurve& curve, double beside) {
    const CurvePoint& first = curve.points.front();
    plot.series.push_back({.title = curve.others,
                           .look = first.number ? Look::joined : Look::points,
                           .colour = plot.series.size(),
                           .kind = first.arm->runs.front().kind});
    const std::optional<Knee> knee = knee_of(curve);
    for (const CurvePoint& point : curve.points) {
      const RunArm& arm = *point.arm;
      const SideSummary side = summary_of_arm(arm, throughput_metric(unit_of(arm)));
      if (!side.geometric_mean) continue;
      const auto word =
          static_cast<double>(std::ranges::find(values, point.value) - values.begin());
      const double place = point.number ? *point.number : word + beside;
      if (point.number) numbers.insert(place);
      const Estimate mean = figures.emplace_back(side.mean());
      plot.series.back().marks.push_back({place, mean.value, mean.interval, point.value});
      const bool is_knee = knee && knee->point == &point;
      if (is_knee) knees.marks.push_back({place, mean.value});
      const auto memory = memory_of(arm), per_joule = samples_per_joule(set, arm, mean.value);
      if (table.rows.empty()) {
        gaps = why_unknown("Memory", memory) + why_unknown("Power", per_joule);
      }
      table.rows.push_back({arm.name, point.value, estimate_text(mean),
                            std::to_string(timed_runs(arm).size()), is_knee ? "knee" : "-",
                            significant_or_dash(memory, 1e-9), significant_or_dash(per_joule)});
    }
  }
};

// `curves`: those over one setting.
Chart curve_chart(const RunSet& set, std::vector<GridCurve> curves) {
  const std::string setting = curves.front().setting;
  const std::string near_best = plain_percent(1 - least_share_at_knee) + " of the best";
  const UnitWords& words = words_of(units_of(set));
  Chart chart{.name = "throughput_over_" + setting,
              .title = "Throughput over " + setting,
              .caption = "Geometric mean of runs; whiskers: its 95 % interval, none for one run."};
  const size_t left_out = curves.size() > most_curves ? curves.size() - most_curves : 0;
  curves.resize(curves.size() - left_out);
  CurvesOfGrid drawn{.set = set};
  drawn.knees = {.title = "smallest within " + near_best, .rings = true, .radius = 7};
  drawn.table.columns = {{"arm"},  {setting, true}, {words.rate, true},     {"n", true},
                         {"knee"}, {"GB", true},    {words.per_joule, true}};
  for (const GridCurve& curve : curves) {
    for (const CurvePoint& point : curve.points) add_new(drawn.values, point.value);
  }
  const auto count = static_cast<double>(curves.size());
  for (size_t i = 0; i < curves.size(); ++i) {
    drawn.add(curves[i], 0.6 / count * (static_cast<double>(i) - (count - 1) / 2));
  }
  if (drawn.figures.empty()) return missing_chart(chart, "no run is complete");
  if (!drawn.knees.marks.empty()) {
    chart.caption += " Ring: the smallest batch within " + near_best + " throughput of its curve.";
  }
  chart.caption += counts_text(drawn.table) + left_out_text(left_out) + drawn.gaps;
  chart.table = drawn.table;
  Plot& plot = chart.plots.emplace_back(drawn.plot);
  plot.x = axis_of(setting, drawn.numbers, drawn.values);
  plot.y = {.title = words.rate, .end = 1.05 * axis_end(drawn.figures)};
  plot.series.push_back(std::move(drawn.knees));
  std::erase_if(plot.series, [](const Series& series) { return series.marks.empty(); });
  return chart;
}

struct FigureOfArm {
  std::string name;  // empty where it is the only one
  std::function<Maybe<Estimate>(const FractionPoint& point)> value_of;
};

// A row for each arm that has one of the figures, all of them ratios: 1 is marked. `missing`: what
// to say where no arm has any.
Chart ratio_chart(Chart chart, const char* axis, const char* missing,
                  const std::vector<FigureOfArm>& figures,
                  const std::vector<FractionPoint>& points) {
  chart.table.columns = {{"arm"}};
  Bars bars{.axis = axis, .line = 1};
  for (const FigureOfArm& figure : figures) {
    chart.table.columns.push_back({figure.name.empty() ? axis : figure.name, true});
    bars.sides.emplace_back(figure.name);
  }
  chart.table.columns.push_back({"n", true});
  size_t left_out = 0;
  for (const FractionPoint& point : points) {
    std::vector<std::string> cells = {point.arm};
    const size_t before = bars.bars.size();
    for (size_t side = 0; side < figures.size(); ++side) {
      const Maybe<Estimate> value = figures[side].value_of(point);
      cells.push_back(value ? value_text(*value) : "-");
      if (value) bars.bars.push_back({bars.rows.size(), side, Kind::measured, *value});
    }
    if (bars.bars.size() == before) continue;
    if (bars.rows.size() == most_rows) {
      bars.bars.resize(before);
      ++left_out;
      continue;
    }
    bars.rows.push_back(point.arm);
    cells.push_back(std::to_string(point.runs));
    chart.table.rows.push_back(cells);
  }
  chart.caption += counts_text(chart.table) + left_out_text(left_out);
  return bar_chart(std::move(chart), bars, missing);
}

// Named "job 2: resnet18 forward", or without its task where that is not the same in all arms.
FigureOfArm progress_of_job(const std::vector<FractionPoint>& points, size_t job) {
  std::set<std::string> tasks;
  for (const FractionPoint& point : points) {
    if (job < point.unlike_jobs.size()) tasks.insert(point.unlike_jobs[job].task);
  }
  return {"job " + std::to_string(job + 1) + (tasks.size() == 1 ? ": " + *tasks.begin() : ""),
          [job](const FractionPoint& point) -> Maybe<Estimate> {
            if (job >= point.unlike_jobs.size()) return Unknown{"there is no such job"};
            return point.unlike_jobs[job].of_alone;
          }};
}

// Each of unlike jobs beside itself alone, and the sum of that, where throughputs do not add.
std::vector<Chart> charts_of_unlike_jobs(const std::vector<FractionPoint>& points,
                                         const DeviceWords& device) {
  size_t most_jobs = 0;
  for (const FractionPoint& point : points) {
    most_jobs = std::max(most_jobs, point.unlike_jobs.size());
  }
  if (most_jobs == 0) return {};
  std::vector<FigureOfArm> of_jobs;
  for (size_t job = 0; job < most_jobs; ++job) of_jobs.push_back(progress_of_job(points, job));
  constexpr const char* missing = "no such job ran alone";
  return {ratio_chart(
              {.name = "weighted_speedup",
               .title = "How much work gets done?",
               .caption = std::string("Weighted speedup: the sum over jobs of each one's speed "
                                      "over its speed alone on ") +
                          device.whole + "; one after another gives 1; whiskers: 95 % interval."},
              "weighted speedup", missing, {{"", &FractionPoint::weighted_speedup}}, points),
          ratio_chart({.name = "progress",
                       .title = "How fast is each job?",
                       .caption = std::string("Speed of each job over its speed alone on ") +
                                  device.whole + "; whiskers: 95 % interval."},
                      "times as fast as alone", missing, of_jobs, points)};
}

void add_charts_of_runs(std::vector<Chart>& charts, const ShownArms& shown) {
  for (const auto chart : {throughput_chart, run_order_chart, speedup_chart, efficiency_chart,
                           step_strip_chart, step_distribution_chart, profile_chart}) {
    charts.push_back(chart(shown));
  }
  for (const auto chart : {cost_chart, pipeline_chart}) {
    Chart found = chart(shown);
    if (found.missing.empty()) charts.push_back(std::move(found));
  }
}

}  // namespace

// Bars of a row stand below each other, one for each side; a series for each side and kind that
// occur, so that the legend names no other.
Chart bar_chart(Chart chart, const Bars& bars, const std::string& missing) {
  if (bars.bars.empty()) return missing_chart(std::move(chart), missing);
  const double end = end_of(bars);
  const size_t sides = bars.sides.size();
  const double half_height = 0.38 / static_cast<double>(sides);
  Plot plot{.x = {.title = bars.axis, .end = (1 + room_of_value) * end},
            .y = row_axis(bars.rows),
            .rows = true,
            .half_height = 0.9 * half_height,
            .height = height_of_rows(bars.rows.size() * (sides + 1) / 2),
            .rule = bars.line};
  Series runs{.title = "single runs", .rings = true, .radius = 2.5};
  Series values{.look = Look::labels};
  for (const Bar& bar : bars.bars) {
    const std::string& side = bars.sides[bar.side];
    const std::string title =
        bar.kind == Kind::measured ? side : side + (side.empty() ? "" : ", ") + to_string(bar.kind);
    auto series = std::ranges::find(plot.series, title, &Series::title);
    if (series == plot.series.end()) {
      series = plot.series.insert(
          series, {.title = title, .look = Look::bars, .colour = bar.side, .kind = bar.kind});
    }
    double y =
        static_cast<double>(bar.row) - 0.38 + half_height * static_cast<double>(2 * bar.side + 1);
    series->marks.push_back({bar.figure.value, y, bar.figure.interval});
    for (const double circle : bar.circles) runs.marks.push_back({circle, y});
    // A whisker that is cut goes on to the edge: its value is above it.
    if (bar.figure.interval && bar.figure.interval->upper > end) y -= 0.6 * half_height;
    values.marks.push_back(
        {std::min(end, place_of_value(bar, bars)), y, {}, value_text(bar.figure)});
  }
  if (!runs.marks.empty()) plot.series.push_back(std::move(runs));
  plot.series.push_back(std::move(values));
  chart.plots = {std::move(plot)};
  return chart;
}

Sides sides_of(const GroupedRuns& runs) {
  Sides sides;
  for (const auto& [name, set] : runs.groups) sides.emplace_back(name, &set);
  if (sides.empty()) sides = {{"", &runs.all}};
  return sides;
}

ShownArms shown_arms(const RunSet& set) { return arms_of({{"", &set}}); }

ShownArms shown_arms(const GroupedRuns& runs) { return arms_of(sides_of(runs)); }

ShownArms shown_arms(const RunSet& base, const RunSet& next, const Comparison& comparison) {
  const SideWords words = words_of(comparison.options);
  ShownArms shown{.sides = {words.base_title, words.new_title}, .sets = {&base, &next}};
  const std::vector<ArmPair> pairs = paired_arms(base, next);
  for (const ComparisonRow& row : comparison.rows) {
    if (row.metric != comparison.rows.front().metric || !row.since.empty()) continue;
    const ArmPair* pair = find_in(pairs, row.arm, &ArmPair::name);
    if (shown.rows.size() == most_rows || pair == nullptr) continue;
    shown.rows.push_back(row.arm);
    add_arm(shown, row.arm, pair->base, 0);
    add_arm(shown, row.arm, pair->next, 1);
  }
  shown.left_out = pairs.size() - shown.rows.size();
  shown.compared = words.new_title + std::string(" against ") + words.base_title;
  return shown;
}

std::string titled(const std::string& title, const ShownArms& shown) {
  return shown.compared.empty() ? title : title + ": " + shown.compared;
}

std::string labelled(const std::string& arm, const std::string& side) {
  return side.empty() ? arm : arm + ", " + side;
}

std::string ShownArm::label() const {
  return labelled(labelled(name, side), kind == Kind::measured ? "" : to_string(kind));
}

std::vector<Chart> fraction_charts(const RunSet& set) {
  const std::vector<FractionPoint> points = fractions_of(set);
  const DeviceWords& device = device_words_of(set);
  std::vector<Chart> charts = charts_of_unlike_jobs(points, device);
  charts.push_back(ratio_chart(
      {.name = "sharing",
       .title = "What does sharing gain?",
       .caption = "Throughput of all jobs (weighted speedup, if they are unlike) over that of as "
                  "many one after another, and in time slices; whiskers: 95 % interval."},
      "times as fast", "no jobs ran one after another or in time slices",
      {{"against one after another", &FractionPoint::of_serial},
       {"against time slices", &FractionPoint::of_timeslice}},
      points));
  charts.push_back(ratio_chart(
      {.name = "slowdown",
       .title = "What does it cost a job?",
       .caption = std::string("How many times as long a job takes as alone on ") + device.whole +
                  ", and as alone on the same share, which is what its neighbours cost; whiskers: "
                  "95 % interval."},
      "times as long", "no job ran alone",
      {{std::string("against alone on ") + device.name, &FractionPoint::slowdown},
       {"against alone on the share", &FractionPoint::interference}},
      points));
  return charts;
}

std::vector<Chart> grid_charts(const RunSet& set) {
  const std::vector<GridCurve> all = grid_curves(set);
  std::vector<Chart> charts;
  for (auto first = all.begin(); first != all.end();) {
    const auto end = std::find_if(
        first, all.end(), [&](const GridCurve& curve) { return curve.setting != first->setting; });
    charts.push_back(curve_chart(set, {first, end}));
    first = end;
  }
  return charts;
}

std::vector<Chart> charts_of(const GroupedRuns& runs) {
  std::vector<Chart> charts;
  if (shares_a_device(runs.all)) charts = fraction_charts(runs.all);
  append(charts, grid_charts(runs.all));
  add_charts_of_runs(charts, shown_arms(runs));
  return charts;
}

std::vector<Chart> charts_of(const RunSet& base, const RunSet& next, const Comparison& comparison) {
  std::vector<Chart> charts = {difference_chart(comparison)};
  add_charts_of_runs(charts, shown_arms(base, next, comparison));
  return charts;
}

}  // namespace nearmetal
