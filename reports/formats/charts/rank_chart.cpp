#include <algorithm>
#include <sstream>

#include "reports/formats/charts/charts.h"
#include "reports/statistics/statistics.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

struct Row {
  std::string label;
  std::vector<double> percent;  // of each rank, from the middle rank of its run
};

// Runs of several ranks of which all have their step times.
std::vector<Row> rows_of(const ShownArms& shown) {
  std::vector<Row> rows;
  for (const ShownArm& arm : shown.arms) {
    int64_t number = 0;
    for (const SetRun& run : arm.arm->runs) {
      ++number;
      std::vector<double> medians;
      for (const Rank& rank : run.run.ranks) {
        if (rank.step_time) medians.push_back(rank.step_time->median_seconds);
      }
      if (medians.size() < 2 || medians.size() != run.run.ranks.size()) continue;
      if (rows.size() == most_rows) return rows;
      const double middle = median(medians);
      Row row{arm.label() + ", run " + std::to_string(number), {}};
      for (const double seconds : medians) row.percent.push_back(100 * (seconds / middle - 1));
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace

Chart rank_chart(const ShownArms& shown) {
  Chart chart{.name = "ranks", .title = "Step time by rank"};
  const std::vector<Row> rows = rows_of(shown);
  if (rows.empty()) return missing_chart(chart, "no run has several ranks");
  chart.table.columns = {{"run"}, {"slowest rank"}, {"%", true}, {"fastest rank"}, {"%", true}};
  std::ostringstream csv = csv_with("position,run,rank,percent");
  std::vector<std::string> labels;
  double widest = 0.1;  // %: less is not worth a colour
  size_t ranks = 0;
  for (const Row& row : rows) {
    for (size_t rank = 0; rank < row.percent.size(); ++rank) {
      csv << labels.size() << ',' << quoted_label(row.label) << ',' << rank << ','
          << row.percent[rank] << '\n';
      widest = std::max(widest, std::abs(row.percent[rank]));
    }
    const auto [least, most] = std::ranges::minmax_element(row.percent);
    chart.table.rows.push_back(
        {row.label, std::to_string(most - row.percent.begin()), signed_percent(*most / 100),
         std::to_string(least - row.percent.begin()), signed_percent(*least / 100)});
    ranks = std::max(ranks, row.percent.size());
    labels.push_back(row.label);
  }
  const std::string limit = plain_number(widest);
  chart.caption =
      "Deviation of each rank's median step time from that of the run's middle rank. At most " +
      std::to_string(most_rows) + " runs; n = " + std::to_string(rows.size()) + ".";
  chart.csv = csv.str();
  chart.script = chart_head(height_of_rows(rows.size())) + row_axis(labels) +
                 "set xrange [-0.5:" + plain_number(static_cast<double>(ranks) - 0.5) +
                 "]\nset xlabel 'rank'\nset xtics " +
                 std::to_string(std::max<size_t>(1, ranks / 8)) + "\nset palette defined (-1 '" +
                 colour(0) + "', 0 '#bbbbbb', 1 '" + colour(1) + "')\nset cbrange [-" + limit +
                 ":" + limit + "]\nset cblabel '%'\nset cbtics " +
                 plain_number(tick_step(widest, 2)) + "\nset rmargin 9\n" +
                 "set style fill solid 1 noborder\n"
                 "plot $data using 'rank':'position':(0.5):(0.45):'percent' with boxxy "
                 "lc palette notitle\n";
  return chart;
}

}  // namespace nearmetal
