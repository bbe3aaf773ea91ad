#include "reports/formats/charts/step_charts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

// The complete run of an arm with the median throughput that `has` what a chart needs; null where
// none has.
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

// Step times of the timed window, of the rank whose steps took longest; empty where they are not
// kept.
std::span<const double> window_steps(const Run& run) {
  if (!run.window) return {};
  std::span<const double> slowest;
  double longest = -1;
  for (size_t i = 0; i < run.ranks.size(); ++i) {
    const std::span<const double> steps = window_steps(run, i);
    if (steps.empty()) continue;
    const double mean =
        std::accumulate(steps.begin(), steps.end(), 0.0) / static_cast<double>(steps.size());
    if (mean > longest) {
      longest = mean;
      slowest = steps;
    }
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
    const auto at = [&](double share) {
      return significant(milliseconds * quantile(steps.seconds, share), 5);
    };
    table.rows.push_back({steps.label, std::to_string(steps.seconds.size()), at(0), at(0.5),
                          at(0.95), at(0.99), at(1)});
  }
  return table;
}

using Points = std::vector<std::pair<double, double>>;

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
      if (points.empty() || points.back().first != number) {
        points.emplace_back(number, milliseconds * *step);
      }
    }
  }
  return points;
}

// The percentage of the steps that took no longer, over milliseconds.
Points distribution_points(std::span<const double> seconds) {
  constexpr int count = 400;
  std::vector<double> sorted(seconds.begin(), seconds.end());
  std::ranges::sort(sorted);
  const auto last = static_cast<double>(sorted.size() - 1);
  Points points;
  for (int i = 0; i <= count; ++i) {
    const double share = static_cast<double>(i) / count;
    points.emplace_back(milliseconds * sorted[static_cast<size_t>(std::lround(share * last))],
                        100 * share);
  }
  return points;
}

std::string strip_script(const std::vector<Steps>& all) {
  constexpr int panel_height = 120;
  const auto panels = static_cast<double>(all.size());
  std::string script = chart_head(40 + panel_height * static_cast<int>(all.size()));
  double most = 0, longest = 0;
  for (const Steps& steps : all) {
    most = std::max(most, *std::ranges::max_element(steps.seconds));
    longest = std::max(longest, static_cast<double>(steps.seconds.size()));
  }
  script += axis('x', 0, longest, tick_step(longest, most_ticks(longest)), "") +
            axis('y', 0, 1.1 * milliseconds * most, tick_step(milliseconds * most, 3), "ms") +
            "set grid ytics ls 1\nset lmargin 11\nset rmargin 2\nset tmargin 1.6\n"
            "set bmargin 2\nset multiplot\n";
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string index = std::to_string(i);
    script += "set origin 0, " + plot_number((panels - 1 - static_cast<double>(i)) / panels) +
              "\nset size 1, " + plot_number(1 / panels) + "\nset title " +
              quoted_label(all[i].label) +
              " offset 0, -0.7\nplot $data using (column('panel') == " + index +
              " ? column('step') : NaN):'milliseconds' with lines lw 1 lc rgb '" + colour(i) +
              "' notitle\n";
  }
  return script + "unset multiplot\n";
}

// The distribution without the slowest hundredth: a single outlier would leave no width for the
// others.
std::string distribution_script(const std::vector<Steps>& all) {
  double least = quantile(all.front().seconds, 0);
  double most = 0;
  for (const Steps& steps : all) {
    least = std::min(least, quantile(steps.seconds, 0));
    most = std::max(most, quantile(steps.seconds, 0.99));
  }
  if (least == most) most = least * 1.001;  // an axis has a length
  const double space = 0.03 * (most - least);
  std::string script = chart_head(320 + key_line_height * static_cast<int>(all.size())) +
                       axis('x', milliseconds * (least - space), milliseconds * (most + space),
                            tick_step(milliseconds * (most - least), 4), "step time, ms") +
                       axis('y', 0, 100, 20, "% of the steps") + "set grid ls 1\n" + key_above +
                       "plot ";
  for (size_t i = 0; i < all.size(); ++i) {
    script += std::string(i > 0 ? ", \\\n  " : "") +
              "$data using (column('arm') == " + std::to_string(i) +
              " ? column('milliseconds') : NaN):'percent' with lines lw 2 dt " +
              std::to_string(i % 4 + 1) + " lc rgb '" + colour(i) + "' title " +
              quoted_label(all[i].label);
  }
  return script + "\n";
}

// `header`: of the data, whose lines begin with the number of the arm.
Chart chart_of(Chart chart, const ShownArms& shown, const char* header,
               Points (*points_of)(std::span<const double> seconds),
               std::string (*script_of)(const std::vector<Steps>& all)) {
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
  chart.caption += " Slowest rank of the run with the median throughput." +
                   counts_text(chart.table, "steps") + left_out_text(left_out);
  TextStream csv = csv_with(header);
  for (size_t i = 0; i < all.size(); ++i) {
    for (const auto& [x, y] : points_of(all[i].seconds)) csv << i << ',' << x << ',' << y << '\n';
  }
  chart.csv = csv.str();
  chart.script = script_of(all);
  return chart;
}

struct Part {
  std::string name;
  double seconds = 0;
};

constexpr const char* not_in_kernels = "not in kernels";

// The parts by phase; what a step takes beyond the kernels is a part, too.
std::vector<Part> parts_of(const StepProfile& profile) {
  std::vector<Part> parts;
  for (const char* name : names_of(Phase{})) parts.push_back({name});
  for (const ProfileEntry& entry : profile.entries) {
    parts[static_cast<size_t>(entry.phase)].seconds += entry.seconds;
  }
  parts.push_back({not_in_kernels, std::max(0.0, profile.step_seconds - profile.sum_seconds)});
  return parts;
}

// A row for each of `rows`, over the time to about `end` milliseconds; elements of a plot follow.
std::string time_line(const std::vector<std::string>& rows, double end) {
  return chart_head(height_of_rows(rows.size()) + 30) + row_axis(rows) +
         "set xrange [0:*]\nset xtics " + plot_number(tick_step(end, most_ticks(end))) +
         "\nset xlabel 'ms'\nset grid xtics ls 1\n" + key_line + "plot ";
}

// An element of it: boxes from start to end of the data of which `condition` holds.
std::string boxes(const std::string& condition, const char* half_height, const std::string& look,
                  const std::string& title) {
  return "$data using (" + condition +
         " ? (column('start') + column('end')) / 2 : NaN):'position':((column('end') - "
         "column('start')) / 2):(" +
         half_height + ") with boxxy " + look + " title '" + title + "'";
}

// `parts`: their names, and the longest of any row.
std::string profile_script(const std::vector<std::string>& rows, const std::vector<Part>& parts) {
  double end = 0;
  for (const Part& part : parts) end += milliseconds * part.seconds;
  std::string script = time_line(rows, end);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].seconds == 0) continue;
    const std::string look =
        parts[i].name == not_in_kernels ? outline(colour(6)) : fill(Kind::measured, colour(i));
    script += boxes("strcol('part') eq '" + parts[i].name + "' && column('end') > column('start')",
                    "0.3", look, parts[i].name) +
              ", \\\n  ";
  }
  return script +
         "$data using (strcol('part') eq 'step' ? column('end') : NaN):(column('position') - 0.42)"
         ":(0):(0.84) with vectors nohead lw 2.5 lc rgb 'black' title 'step'\n";
}

constexpr size_t most_numbered_tasks = 24;  // of a stage

using Marks = std::vector<std::vector<TaskMark>>;  // of the first replica, by stage

bool has_marks(const Run& run) {
  return run.pipeline && std::ranges::all_of(run.ranks, [](const Rank& rank) {
           return rank.stage && !rank.stage->marks.empty();
         });
}

// The marks on one clock, from 0 on.
Marks marks_of(const Run& run) {
  Marks marks;
  for (const Rank& rank : run.ranks) {
    if (rank.stage->replica == 0) marks.push_back(rank.stage->marks);
  }
  align_clocks(marks);
  return marks;
}

std::string pipeline_script(const std::vector<std::string>& rows, double end, bool numbered) {
  std::string script = time_line(rows, end);
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    script += (pass == Pass::forward ? "" : ", \\\n  ") +
              boxes("strcol('pass') eq '" + std::string(to_string(pass)) + "'", "0.36",
                    fill(Kind::measured, colour(static_cast<size_t>(pass))), to_string(pass));
  }
  return script + (numbered ? ", \\\n  $data using ((column('start') + column('end')) / 2):"
                              "'position':'micro_batch' with labels font ',9' notitle\n"
                            : "\n");
}

}  // namespace

Chart step_strip_chart(const ShownArms& shown) {
  return chart_of(
      {.name = "steps",
       .title = "Step times, one after another",
       .caption = "Every step of the timed window; the axis of step times begins at zero."},
      shown, "panel,step,milliseconds", strip_points, strip_script);
}

Chart step_distribution_chart(const ShownArms& shown) {
  return chart_of({.name = "distribution",
                   .title = "Distribution of step times",
                   .caption = "Share of the steps that took no longer. The axis of time does not "
                              "begin at zero, and ends where all arms have 99 % of their steps."},
                  shown, "arm,milliseconds,percent", distribution_points, distribution_script);
}

Chart profile_chart(const ShownArms& shown) {
  constexpr size_t most_profiles = 12;
  Chart chart{.name = "profile", .title = "Where the step goes"};
  chart.table.columns = {{"arm"}, {"part"}, {"ms", true}, {"% of the step", true}};
  TextStream csv = csv_with("position,arm,part,start,end");
  std::vector<std::string> rows;
  std::vector<Part> longest;
  for (const ShownArm& arm : shown.arms) {
    const Run* run = typical_run(*arm.arm, [](const Run& any) { return any.profile.has_value(); });
    if (run == nullptr || rows.size() == most_profiles) continue;
    const std::string label = quoted_label(arm.label());
    const auto add = [&](const std::string& part, double start, double end) {
      csv << rows.size() << ',' << label << ',' << part << ',' << milliseconds * start << ','
          << milliseconds * end << '\n';
      chart.table.rows.push_back(
          {arm.label(), part, significant(milliseconds * (end - start)),
           significant(100 * (end - start) / run->profile->step_seconds, 3)});
    };
    const std::vector<Part> parts = parts_of(*run->profile);
    longest.resize(parts.size());
    double start = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      longest[i] = {parts[i].name, std::max(longest[i].seconds, parts[i].seconds)};
      if (parts[i].seconds > 0) add(parts[i].name, start, start + parts[i].seconds);
      start += parts[i].seconds;
    }
    add("step", 0, run->profile->step_seconds);
    rows.push_back(arm.label());
  }
  if (rows.empty()) return missing_chart(chart, "no run was taken with --profile");
  chart.caption =
      "Kernels or primitives, each timed alone, by phase; the line: the step as it ran, median of "
      "the timed window. One run of each arm. Where kernels reach beyond it, they overlap in the "
      "step or are slower alone.";
  chart.csv = csv.str();
  chart.script = profile_script(rows, longest);
  return chart;
}

Chart pipeline_chart(const ShownArms& shown) {
  Chart chart{.name = "pipeline", .title = "One step of the stages"};
  chart.table.columns = {
      {"arm"},          {"stage", true}, {"pass"}, {"micro-batch", true}, {"begin, ms", true},
      {"end, ms", true}};
  TextStream csv = csv_with("position,arm,stage,pass,micro_batch,start,end");
  std::vector<std::string> rows;
  double end = 0;
  int runs = 0;
  bool numbered = true;
  for (const ShownArm& arm : shown.arms) {
    const Run* run = typical_run(*arm.arm, has_marks);
    if (run == nullptr) continue;
    const Marks stages = marks_of(*run);
    if (rows.size() + stages.size() > most_rows) break;
    ++runs;
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      numbered = numbered && stages[stage].size() <= most_numbered_tasks;
      for (const TaskMark& mark : stages[stage]) {
        const double start = milliseconds * mark.begin_seconds;
        end = std::max(end, milliseconds * mark.end_seconds);
        csv << rows.size() << ',' << quoted_label(arm.label()) << ',' << stage << ','
            << to_string(mark.task.pass) << ',' << mark.task.micro_batch << ',' << start << ','
            << milliseconds * mark.end_seconds << '\n';
        chart.table.rows.push_back({arm.label(), std::to_string(stage), to_string(mark.task.pass),
                                    std::to_string(mark.task.micro_batch), significant(start, 5),
                                    significant(milliseconds * mark.end_seconds, 5)});
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
  chart.csv = csv.str();
  chart.script = pipeline_script(rows, end, numbered);
  return chart;
}

}  // namespace nearmetal
