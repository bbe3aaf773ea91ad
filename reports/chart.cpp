#include "reports/chart.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "reports/comparison_row.h"
#include "reports/text.h"

namespace nearmetal {
namespace {

// gnuplot runs what stands between backquotes, and takes @ and $ as marks.
std::string label_of(const std::string& name) {
  std::string label = name.substr(0, 40);
  for (char& c : label) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (!plain && std::string(" .,:+-_|#/()").find(c) == std::string::npos) c = '_';
  }
  return label;
}

// Of gnuplot: 1 solid, 2 hatched, 3 empty.
int style_of(const RunArm& arm) {
  if (arm.runs.empty() || arm.runs.front().key.empty()) return 3;
  const std::string& kind = arm.runs.front().key.front().value;
  return kind == "measured" ? 1 : kind == "emulated" ? 2 : 3;
}

constexpr const char* settings =
    R"(set terminal svg size 760,380 dynamic noenhanced font "sans-serif,13" background "#ffffff"
set encoding utf8
set boxwidth 0.6
set yrange [0:*]
set ylabel "images/s"
set grid ytics lc rgb "#dddddd"
set tics nomirror
set xtics rotate by -20 noenhanced
set key off
set border 3
)";

constexpr const char* plots = R"(set xrange [-0.7:last+0.7]
plot $arms using 1:($6==1 ? $2 : 1/0):xtic(5) with boxes lc rgb "#3366aa" fs solid 0.5 border lc rgb "#3366aa", \
  $arms using 1:($6==2 ? $2 : 1/0):xtic(5) with boxes lc rgb "#aa6633" fs pattern 4 border lc rgb "#aa6633", \
  $arms using 1:($6==3 ? $2 : 1/0):xtic(5) with boxes lc rgb "#666666" fs empty border lc rgb "#666666", \
  $arms using 1:($3<$4 ? $3 : 1/0):(0):($4-$3) with vectors heads size screen 0.01,90 lw 2 lc rgb "#000000", \
  $runs using ($1+0.2):2 with points pt 6 ps 0.6 lc rgb "#000000"
)";

}  // namespace

Chart throughput_chart(const RunSet& set) {
  const Metric& metric = all_metrics().front();
  std::ostringstream arms;
  std::ostringstream points;
  arms.precision(12);
  points.precision(12);
  std::vector<std::string> counts;
  int column = 0;
  for (const RunArm& arm : set.arms) {
    const SideSummary side = summary_of_arm(arm, metric);
    if (!side.geometric_mean) continue;
    const double mean = *side.geometric_mean;
    const Interval whisker = side.interval ? *side.interval : Interval{mean, mean};
    arms << column << ' ' << mean << ' ' << whisker.lower << ' ' << whisker.upper << " \""
         << label_of(arm.name) << "\" " << style_of(arm) << '\n';
    for (const SetRun& run : arm.runs) {
      const Maybe<double> value = metric.value_of(run.run);
      if (run.run.status == Status::complete && value) points << column << ' ' << *value << '\n';
    }
    counts.push_back(arm.name + " n = " + std::to_string(side.runs));
    ++column;
  }
  Chart chart;
  chart.caption =
      "Throughput: geometric mean of runs, whiskers: 95 % interval (none for one run), "
      "circles: runs. " +
      joined(counts);
  if (column == 0) return chart;
  chart.script = settings + ("last = " + std::to_string(column - 1)) + "\n$arms << EOD\n" +
                 arms.str() + "EOD\n$runs << EOD\n" + points.str() + "EOD\n" + plots;
  return chart;
}

}  // namespace nearmetal
