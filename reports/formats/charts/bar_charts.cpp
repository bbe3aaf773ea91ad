#include <algorithm>
#include <functional>
#include <set>

#include "reports/compare/comparison_row.h"
#include "reports/compare/scaling.h"
#include "reports/formats/charts/chart.h"
#include "reports/formats/charts/charts.h"
#include "reports/sharing/fractions.h"
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
  if (point.is_reference()) return "-";
  const Maybe<Interval> percent = in_percent(point.efficiency_interval);
  return percent ? with_interval(100 * point.efficiency, *percent)
                 : significant(100 * point.efficiency);
}

struct FigureOfArm {
  std::string name;  // empty where it is the only one
  std::function<Maybe<SpeedRatio>(const FractionPoint& point)> value_of;
};

FigureOfArm plain(const char* name, Maybe<double> FractionPoint::*figure, double scale = 1) {
  return {name, [figure, scale](const FractionPoint& point) -> Maybe<SpeedRatio> {
            const Maybe<double>& value = point.*figure;
            if (!value) return Unknown{value.reason};
            return SpeedRatio{scale * *value, Unknown{"not of several runs"}};
          }};
}

FigureOfArm ratio(const std::string& name, Maybe<SpeedRatio> FractionPoint::*figure) {
  return {name, [figure](const FractionPoint& point) { return point.*figure; }};
}

struct Question {
  Chart chart;  // name, title and caption
  const char* axis;
  const char* missing;               // what to say where no arm has a figure
  std::vector<FigureOfArm> figures;  // bars of an arm
  bool against_one = false;          // a ratio: 1 is marked
};

// A row for each arm that has one of the figures.
Chart answered(Question question, const std::vector<FractionPoint>& points) {
  Chart& chart = question.chart;
  chart.table.columns = {{"arm"}};
  Bars bars{.axis = question.axis};
  if (question.against_one) bars.line = 1;
  for (const FigureOfArm& figure : question.figures) {
    chart.table.columns.push_back({figure.name.empty() ? question.axis : figure.name, true});
    bars.sides.emplace_back(figure.name);
  }
  chart.table.columns.push_back({"n", true});
  std::vector<std::pair<std::string, std::string>> counts;
  size_t left_out = 0;
  for (const FractionPoint& point : points) {
    std::vector<std::string> cells = {point.arm};
    const size_t before = bars.bars.size();
    for (size_t side = 0; side < question.figures.size(); ++side) {
      const Maybe<SpeedRatio> value = question.figures[side].value_of(point);
      cells.push_back(value ? significant(value->value) : "-");
      if (!value) continue;
      bars.bars.push_back(
          {point.arm, bars.rows.size(), side, Kind::measured, value->value, value->interval, {}});
    }
    if (bars.bars.size() == before) continue;
    if (bars.rows.size() == most_rows) {
      bars.bars.resize(before);
      ++left_out;
      continue;
    }
    bars.rows.push_back(point.arm);
    counts.emplace_back(point.arm, std::to_string(point.runs));
    cells.push_back(counts.back().second);
    chart.table.rows.push_back(cells);
  }
  if (bars.bars.empty()) return missing_chart(chart, question.missing);
  chart.caption += counts_text(counts) + left_out_text(left_out);
  chart.csv = csv_of(bars);
  chart.script = script_of(bars);
  return chart;
}

std::vector<Question> questions(const UnitWords& words, const DeviceWords& device) {
  using Point = FractionPoint;
  return {
      {{.name = "sharing",
        .title = "What does sharing gain?",
        .caption =
            "Throughput of all jobs (weighted speedup, if they are unlike) over that of as many "
            "one after another, and in time slices; whiskers: 95 % interval."},
       "times as fast",
       "no jobs ran one after another or in time slices",
       {ratio("against one after another", &Point::of_serial),
        ratio("against time slices", &Point::of_timeslice)},
       true},
      {{.name = "slowdown",
        .title = "What does it cost a job?",
        .caption = std::string("How many times as long a job takes as alone on ") + device.whole +
                   ", and as alone on the same share, which is what its neighbours cost; whiskers: "
                   "95 % interval."},
       "times as long",
       "no job ran alone",
       {ratio(std::string("against alone on ") + device.name, &Point::slowdown),
        ratio("against alone on the share", &Point::interference)},
       true},
      {{.name = "tail",
        .title = "How much longer are the longest steps?",
        .caption = "99th percentile of step times of the worst job over that of one alone."},
       "times as long",
       "no job ran alone",
       {plain("", &Point::p99_inflation)},
       true},
      {{.name = "fairness",
        .title = "Do the jobs get the same?",
        .caption = "Slowest job over the fastest, and Jain's index; 1 is even."},
       "1 is even",
       "no jobs ran at once",
       {plain("slowest / fastest", &Point::worst_of_best), plain("Jain", &Point::fairness)},
       true},
      {{.name = "memory",
        .title = "How much memory does it take?",
        .caption =
            std::string("Peak use of the memory of ") + device.name + " by all jobs together."},
       "GB",
       "memory was not monitored",
       {plain("", &Point::memory_bytes, 1e-9)}},
      {{.name = "energy",
        .title = std::string("How many ") + words.plural + " for a joule?",
        .caption =
            std::string("Throughput of all jobs over the mean power of ") + device.name + "."},
       words.per_joule,
       "power was not monitored",
       {plain("", &Point::samples_per_joule)}},
  };
}

// "job 2: resnet18 forward", or without its task where that is not the same in all arms.
std::string name_of_job(const std::vector<FractionPoint>& points, size_t job) {
  std::set<std::string> tasks;
  for (const FractionPoint& point : points) {
    if (job < point.unlike_jobs.size()) tasks.insert(point.unlike_jobs[job].task);
  }
  return "job " + std::to_string(job + 1) + (tasks.size() == 1 ? ": " + *tasks.begin() : "");
}

FigureOfArm progress_of_job(const std::vector<FractionPoint>& points, size_t job) {
  return {name_of_job(points, job), [job](const FractionPoint& point) -> Maybe<SpeedRatio> {
            if (job >= point.unlike_jobs.size()) return Unknown{"there is no such job"};
            return point.unlike_jobs[job].of_alone;
          }};
}

// Each of unlike jobs beside itself alone, and the sum of that, where throughputs do not add.
std::vector<Question> questions_of_unlike_jobs(const std::vector<FractionPoint>& points,
                                               const DeviceWords& device) {
  size_t most_jobs = 0;
  for (const FractionPoint& point : points) {
    most_jobs = std::max(most_jobs, point.unlike_jobs.size());
  }
  if (most_jobs == 0) return {};
  Question each{{.name = "progress",
                 .title = "How fast is each job?",
                 .caption = std::string("Speed of each job over its speed alone on ") +
                            device.whole + "; whiskers: 95 % interval."},
                "times as fast as alone",
                "no such job ran alone",
                {},
                true};
  for (size_t job = 0; job < most_jobs; ++job) {
    each.figures.push_back(progress_of_job(points, job));
  }
  Question all{{.name = "weighted_speedup",
                .title = "How much work gets done?",
                .caption = std::string("Weighted speedup: the sum over jobs of each one's speed "
                                       "over its speed alone on ") +
                           device.whole + "; one after another gives 1; whiskers: 95 % interval."},
               "weighted speedup",
               "no such job ran alone",
               {ratio("", &FractionPoint::weighted_speedup)},
               true};
  return {std::move(all), std::move(each)};
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
  if (bars.bars.empty()) return missing_chart(chart, "no run is complete");
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
      if (counts.size() == most_rows) continue;
      const std::string name = point.arm + (point.is_reference() ? ", reference" : "");
      const std::string label = labelled(name, shown.sides[side]);
      auto row = std::ranges::find(bars.rows, name);
      if (row == bars.rows.end()) row = bars.rows.insert(row, name);
      bars.bars.push_back({label,
                           static_cast<size_t>(row - bars.rows.begin()),
                           side,
                           point.kind,
                           100 * point.efficiency,
                           in_percent(point.efficiency_interval),
                           {}});
      counts.emplace_back(label, std::to_string(point.runs));
      chart.table.rows.push_back({labelled(point.arm, shown.sides[side]),
                                  std::to_string(point.ranks), point.against, percent_text(point),
                                  counts.back().second, scaling_text(point)});
    }
  }
  if (bars.bars.empty()) return missing_chart(chart, one_number_of_ranks);
  chart.caption =
      "Speedup as a share of the ideal, the dashed line; whiskers: 95 % interval. Above 100 % look "
      "at the reference." +
      counts_text(counts);
  chart.csv = csv_of(bars);
  chart.script = script_of(bars);
  return chart;
}

std::vector<Chart> fraction_charts(const RunSet& set) {
  const std::vector<FractionPoint> points = fractions_of(set);
  std::vector<Chart> charts;
  for (Question& question : questions_of_unlike_jobs(points, device_words_of(set))) {
    charts.push_back(answered(std::move(question), points));
  }
  for (Question& question : questions(words_of(units_of(set)), device_words_of(set))) {
    charts.push_back(answered(std::move(question), points));
  }
  return charts;
}

}  // namespace nearmetal
