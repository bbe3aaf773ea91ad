#include "reports/formats/charts/step_charts.h"

#include <algorithm>
#include <span>

#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

// The complete run of median throughput of those that have what a chart needs; null: none has.
const Run* typical_run(const RunArm& arm, bool (*has)(const Run& run)) {
  std::vector<const Run*> runs;
  for (const SetRun* set_run : complete_runs(arm)) {
    const Run& run = set_run->run;
    if (run.throughput && !run.ranks.empty() && has(run)) runs.push_back(&run);
  }
  if (runs.empty()) return nullptr;
  const auto middle = runs.begin() + static_cast<std::ptrdiff_t>((runs.size() - 1) / 2);
  std::nth_element(runs.begin(), middle, runs.end(),
                   [](const Run* a, const Run* b) { return *a->throughput < *b->throughput; });
  return *middle;
}

// Step times of the timed window, of the rank whose steps took longest; empty if they are not kept.
std::span<const double> window_steps(const Run& run) {
  if (!run.window) return {};
  std::span<const double> slowest;
  for (size_t i = 0; i < run.ranks.size(); ++i) {
    const std::span<const double> steps = window_steps(run, i);
    if (!steps.empty() && (slowest.empty() || mean(steps) > mean(slowest))) slowest = steps;
  }
  return slowest;
}

struct Steps {
  std::string label;
  std::span<const double> seconds;
};

TextTable table_of(const std::vector<Steps>& all) {
  TextTable table;
  table.columns = {{"arm"},           {"steps", true},   {"least, ms", true}, {"median, ms", true},
                   {"p95, ms", true}, {"p99, ms", true}, {"most, ms", true}};
  for (const Steps& steps : all) {
    const auto at = [&](double share, size_t least_steps = 1) {
      return steps.seconds.size() < least_steps
                 ? "-"
                 : significant(milliseconds * quantile(steps.seconds, share), 5);
    };
    table.rows.push_back({steps.label, std::to_string(steps.seconds.size()), at(0), at(0.5),
                          at(0.95, 20), at(0.99, 100), at(1)});
  }
  return table;
}

using Points = std::vector<Mark>;

// Milliseconds over the number of the step: the fastest and the slowest of each stretch of steps,
// so that thinning hides no outlier.
Points strip_points(std::span<const double> seconds) {
  constexpr size_t most_stretches = 500;
  Points points;
  const size_t length = (seconds.size() + most_stretches - 1) / most_stretches;
  for (size_t start = 0; start < seconds.size(); start += length) {
    const auto stretch = seconds.subspan(start, std::min(length, seconds.size() - start));
    const auto [least, most] = std::ranges::minmax_element(stretch);
    for (const auto step : {std::min(least, most), std::max(least, most)}) {
      const auto number =
          static_cast<double>(start) + static_cast<double>(step - stretch.begin()) + 1;
      if (points.empty() || points.back().x != number) {
        points.push_back({number, milliseconds * *step});
      }
    }
  }
  return points;
}

// The percentage of the steps that took no longer, over milliseconds: it rises where a step ends.
// Many steps are thinned to as many as can be seen.
Points distribution_points(std::span<const double> seconds) {
  constexpr size_t most_rises = 400;
  std::vector<double> sorted(seconds.begin(), seconds.end());
  std::ranges::sort(sorted);
  const size_t count = std::min(sorted.size(), most_rises);
  Points points;
  for (size_t i = 1; i <= count; ++i) {
    const size_t steps = i * sorted.size() / count;
    const double end = milliseconds * sorted[steps - 1];
    points.push_back({end, points.empty() ? 0 : points.back().y});
    points.push_back({end, 100 * static_cast<double>(steps) / static_cast<double>(sorted.size())});
  }
  return points;
}

// A panel for each arm, all to one scale.
void draw_strips(Chart& chart, const std::vector<Steps>& all) {
  double most = 0, longest = 0;
  for (const Steps& steps : all) {
    most = std::max(most, milliseconds * *std::ranges::max_element(steps.seconds));
    longest = std::max(longest, static_cast<double>(steps.seconds.size()));
  }
  for (const Steps& steps : all) {
    chart.plots.push_back({.title = steps.label,
                           .x = {.title = &steps == &all.back() ? "step" : "", .end = longest},
                           .y = {.title = "ms", .end = 1.1 * most},
                           .height = 80,
                           .series = {{.look = Look::line,
                                       .colour = chart.plots.size(),
                                       .marks = strip_points(steps.seconds)}}});
  }
}

// Without the slowest hundredth of many steps: one outlier would leave no width for the others.
void draw_distribution(Chart& chart, const std::vector<Steps>& all) {
  constexpr size_t many = 100;
  double least = all.front().seconds.front(), most = 0, slowest = 0;
  for (const Steps& steps : all) {
    least = std::min(least, quantile(steps.seconds, 0));
    most = std::max(most, quantile(steps.seconds, steps.seconds.size() < many ? 1 : 0.99));
    slowest = std::max(slowest, quantile(steps.seconds, 1));
  }
  if (least == most) most = least * 1.001;  // an axis has a length
  const double space = 0.03 * (most - least);
  const double begin = std::max(0.0, least - space);
  Plot plot{.x = {.title = "step time, ms",
                  .begin = milliseconds * begin,
                  .end = milliseconds * (most + space)},
            .y = {.title = "% of the steps", .end = 100}};
  for (const Steps& steps : all) {
    Points points = distribution_points(steps.seconds);
    std::erase_if(points, [&](const Mark& mark) { return mark.x > plot.x.end; });
    points.push_back({plot.x.end, points.back().y});
    plot.series.push_back({.title = steps.label,
                           .look = Look::line,
                           .colour = plot.series.size(),
                           .dashed = plot.series.size() % 2 == 1,
                           .marks = std::move(points)});
  }
  if (begin > 0) chart.caption += " The axis of time does not begin at zero.";
  if (slowest > most) chart.caption += " It ends where all arms have 99 % of their steps.";
  chart.plots = {std::move(plot)};
}

Chart chart_of(Chart chart, const ShownArms& shown,
               void (*draw)(Chart& chart, const std::vector<Steps>& all)) {
  chart.title = titled(chart.title, shown);
  std::vector<Steps> all;
  size_t left_out = shown.left_out;
  for (const ShownArm& arm : shown.arms) {
    const Run* run = typical_run(*arm.arm, [](const Run& r) { return window_steps(r).size() > 1; });
    if (run == nullptr) continue;
    if (all.size() == most_arms) {
      ++left_out;
      continue;
    }
    all.push_back({arm.label(), window_steps(*run)});
  }
  if (all.empty())
    return missing_chart(chart,
                         "no arm has a complete run that lists its step times (long ones hold bins "
                         "of them)");
  chart.table = table_of(all);
  draw(chart, all);
  chart.caption += " Slowest rank of the run with the median throughput." +
                   counts_text(chart.table, "steps") + left_out_text(left_out);
  return chart;
}

// Seconds by phase; what a step takes beyond the kernels comes last.
std::vector<double> parts_of(const StepProfile& profile) {
  std::vector<double> parts(names_of(Phase{}).size());
  for (const ProfileEntry& entry : profile.entries) {
    parts[static_cast<size_t>(entry.phase)] += entry.seconds;
  }
  parts.push_back(std::max(0.0, profile.step_seconds - profile.sum_seconds));
  return parts;
}

// A row for each of `rows`, over the time of the marks of `series`.
Plot time_line(const std::vector<std::string>& rows, std::vector<Series> series) {
  double end = 0;
  for (const Series& one : series) {
    for (const Mark& mark : one.marks) end = std::max(end, mark.x);
  }
  return {.x = {.title = "ms", .end = 1.02 * end},
          .y = row_axis(rows),
          .rows = true,
          .half_height = 0.34,
          .height = height_of_rows(rows.size()),
          .series = std::move(series)};
}

// From start to end, in milliseconds.
Mark box(double row, double start, double end, const std::string& text = "") {
  return {end, row, Interval{start, end}, text};
}

bool has_marks(const Run& run) {
  return run.pipeline && std::ranges::all_of(run.ranks, [](const Rank& rank) {
           return rank.stage && !rank.stage->marks.empty();
         });
}

}  // namespace

Chart step_strip_chart(const ShownArms& shown) {
  return chart_of(
      {.name = "steps",
       .title = "Step times, one after another",
       .caption = "Every step of the timed window; the axis of step times begins at zero."},
      shown, draw_strips);
}

Chart step_distribution_chart(const ShownArms& shown) {
  return chart_of({.name = "distribution",
                   .title = "Distribution of step times",
                   .caption = "Share of the steps that took no longer."},
                  shown, draw_distribution);
}

Chart profile_chart(const ShownArms& shown) {
  constexpr size_t most_profiles = 12;
  Chart chart{.name = "profile", .title = titled("Where the step goes", shown)};
  chart.table.columns = {{"arm"}, {"part"}, {"ms", true}, {"% of the step", true}};
  std::vector<std::string> rows;
  std::vector<Series> parts_of_all;
  for (const char* name : names_of(Phase{})) {
    parts_of_all.push_back({.title = name, .look = Look::boxes, .colour = parts_of_all.size()});
  }
  parts_of_all.push_back(
      {.title = "not in kernels", .look = Look::boxes, .colour = 6, .kind = Kind::emulated});
  Series steps{.title = "step", .look = Look::boxes};
  for (const ShownArm& arm : shown.arms) {
    const Run* run = typical_run(*arm.arm, [](const Run& any) { return any.profile.has_value(); });
    if (run == nullptr || rows.size() == most_profiles) continue;
    const auto row = static_cast<double>(rows.size());
    const double step = run->profile->step_seconds;
    const auto tell = [&](const std::string& part, double seconds) {
      chart.table.rows.push_back({arm.label(), part, significant(milliseconds * seconds),
                                  significant(100 * seconds / step, 3)});
    };
    double start = 0;
    const std::vector<double> parts = parts_of(*run->profile);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i] == 0) continue;
      parts_of_all[i].marks.push_back(
          box(row, milliseconds * start, milliseconds * (start + parts[i])));
      tell(parts_of_all[i].title, parts[i]);
      start += parts[i];
    }
    steps.marks.push_back(box(row, milliseconds * step, milliseconds * step));
    tell("step", step);
    rows.push_back(arm.label());
  }
  if (rows.empty()) return missing_chart(chart, "no run was taken with --profile");
  chart.caption =
      "Kernels or primitives, each timed alone, by phase; the line: the step as it ran, median of "
      "the timed window. One run of each arm. Where kernels reach beyond it, they overlap in the "
      "step or are slower alone.";
  std::erase_if(parts_of_all, [](const Series& series) { return series.marks.empty(); });
  parts_of_all.push_back(std::move(steps));
  chart.plots = {time_line(rows, std::move(parts_of_all))};
  return chart;
}

Chart pipeline_chart(const ShownArms& shown) {
  Chart chart{.name = "pipeline", .title = titled("One step of the stages", shown)};
  chart.table.columns = {
      {"arm"},          {"stage", true}, {"pass"}, {"micro-batch", true}, {"begin, ms", true},
      {"end, ms", true}};
  std::vector<std::string> rows;
  std::vector<Series> passes;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    passes.push_back({.title = to_string(pass), .look = Look::boxes, .colour = passes.size()});
  }
  int runs = 0;
  for (const ShownArm& arm : shown.arms) {
    const Run* run = typical_run(*arm.arm, has_marks);
    if (run == nullptr) continue;
    std::vector<std::vector<TaskMark>> stages;  // of the first replica
    for (const Rank& rank : run->ranks) {
      if (rank.stage->replica == 0) stages.push_back(rank.stage->marks);
    }
    align_clocks(stages);
    if (rows.size() + stages.size() > most_rows) break;
    ++runs;
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      for (const TaskMark& mark : stages[stage]) {
        const double start = milliseconds * mark.begin_seconds;
        const double end = milliseconds * mark.end_seconds;
        const std::string micro_batch = std::to_string(mark.task.micro_batch);
        passes.at(static_cast<size_t>(mark.task.pass))
            .marks.push_back(box(static_cast<double>(rows.size()), start, end, micro_batch));
        chart.table.rows.push_back({arm.label(), std::to_string(stage), to_string(mark.task.pass),
                                    micro_batch, significant(start, 5), significant(end, 5)});
      }
      rows.push_back(arm.label() + ", stage " + std::to_string(stage));
    }
  }
  if (rows.empty()) return missing_chart(chart, "no complete run is a pipeline");
  chart.caption =
      "When each stage of the first replica computed each micro-batch: the last step of one run of "
      "each arm, from the marks of the devices, whose clocks are aligned by what travels between "
      "neighbours. Gaps are the bubble and transfers. Runs: n = " +
      std::to_string(runs) + ".";
  chart.plots = {time_line(rows, std::move(passes))};
  return chart;
}

}  // namespace nearmetal
