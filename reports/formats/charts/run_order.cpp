#include "reports/formats/charts/run_order.h"

#include <algorithm>

#include "reports/compare/comparison_row.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

constexpr size_t most_listed = 24;  // of an arm

}  // namespace

std::vector<const SetRun*> runs_in_order(const RunArm& arm) {
  std::vector<const SetRun*> runs;
  for (const SetRun& run : arm.runs) {
    if (has_throughput(run) && !is_imported(run)) runs.push_back(&run);
  }
  std::ranges::stable_sort(runs, {}, [](const SetRun* run) { return run->run.started_at; });
  return runs;
}

std::vector<double> throughputs_of(const std::vector<const SetRun*>& runs) {
  std::vector<double> values;
  for (const SetRun* run : runs) values.push_back(*run->run.throughput);
  return values;
}

TextTable run_order_table(const RunSet& set) {
  TextTable table;
  table.columns = {{"arm"},          {"n", true},   {"min", true},
                   {"median", true}, {"max", true}, {"runs, the first one first"}};
  for (const RunArm& arm : set.arms) {
    const std::vector<double> values = throughputs_of(runs_in_order(arm));
    if (values.size() < 2) continue;
    std::vector<std::string> texts;
    for (size_t i = 0; i < std::min(values.size(), most_listed); ++i) {
      texts.push_back(significant(values[i]));
    }
    if (values.size() > most_listed) {
      texts.push_back("and " + std::to_string(values.size() - most_listed) + " more");
    }
    const auto [least, most] = std::ranges::minmax(values);
    table.rows.push_back({arm.name, std::to_string(values.size()), significant(least),
                          significant(median(values)), significant(most), joined(texts, " ")});
  }
  return table;
}

Chart run_order_chart(const ShownArms& shown) {
  Chart chart{.name = "runs",
              .title = "Runs over time",
              .caption =
                  "Throughput of each complete run against the median of its arm, in the "
                  "order of their start; the table has the least, the median and the "
                  "largest."};
  TextStream csv = csv_with("arm,run,started_at,throughput,percent");
  std::string plots;
  double lowest = 0, highest = 0, longest = 0, first_line = 0;
  size_t arms = 0;
  for (const ShownArm& arm : shown.arms) {
    const std::vector<const SetRun*> runs = runs_in_order(*arm.arm);
    if (runs.size() < 2 || arms == most_arms) continue;
    const double middle = median(throughputs_of(runs));
    for (size_t i = 0; i < runs.size(); ++i) {
      const double percent = 100 * (*runs[i]->run.throughput / middle - 1);
      lowest = std::min(lowest, percent);
      highest = std::max(highest, percent);
      csv << quoted_label(arm.label()) << ',' << i + 1 << ','
          << quoted_label(runs[i]->run.started_at) << ',' << plot_number(*runs[i]->run.throughput)
          << ',' << plot_number(percent) << '\n';
    }
    const auto count = static_cast<double>(runs.size());
    const std::string rows = "$data every ::" + plot_number(first_line) +
                             "::" + plot_number(first_line + count - 1) + " using 'run':'percent' ";
    plots += ", \\\n  " + rows + "with lines lc rgb '" + colour(arms) + "' notitle, \\\n  " + rows +
             "with points " + point(arm.kind, colour(arms)) + " title " + quoted_label(arm.label());
    first_line += count;
    longest = std::max(longest, count);
    ++arms;
  }
  if (arms == 0) return missing_chart(std::move(chart), "no arm has several complete runs");
  const double range = std::max(highest - lowest, 0.01);
  chart.csv = csv.str();
  chart.script = chart_head(280 + key_line_height * static_cast<int>(arms)) +
                 axis('x', 0, longest + 1, std::max(1.0, tick_step(longest, 16)), "run") +
                 axis('y', lowest - 0.1 * range, highest + 0.1 * range, tick_step(range, 8),
                      "% of the median") +
                 "set grid ls 1\n" + key_above +
                 "plot 0 with lines dt 2 lw 1.5 lc rgb 'black' title 'median'" + plots + "\n";
  for (const RunSet* set : shown.sets) {
    TextTable table = run_order_table(*set);
    chart.table.columns = table.columns;
    std::ranges::move(table.rows, std::back_inserter(chart.table.rows));
  }
  chart.caption += counts_text(chart.table);
  return chart;
}

}  // namespace nearmetal
