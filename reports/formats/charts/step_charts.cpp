#include <algorithm>
#include <cmath>
#include <sstream>

#include "reports/formats/charts/charts.h"
#include "reports/statistics/statistics.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

constexpr size_t most_arms = 8;

struct Steps {
  std::string label;
  std::span<const double> seconds;
};

struct StepsOfArms {
  std::vector<Steps> shown;
  size_t left_out = 0;  // arms beyond most_arms
};

// The steps of the typical run of each arm.
StepsOfArms steps_of(const ShownArms& shown) {
  const auto has = [](const Run& run) { return window_steps(run).size() > 1; };
  StepsOfArms found{{}, shown.left_out};
  for (const ShownArm& arm : shown.arms) {
    const Run* run = typical_run(*arm.arm, has);
    if (run == nullptr) continue;
    if (found.shown.size() == most_arms) {
      ++found.left_out;
      continue;
    }
    found.shown.push_back({arm.label(), window_steps(*run)});
  }
  return found;
}

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

// The chart without data and script, which differ.
Chart chart_of(const StepsOfArms& all, const char* name, const char* title,
               const std::string& caption) {
  Chart chart{.name = name, .title = title};
  if (all.shown.empty()) {
    return missing_chart(chart, "no arm has a complete run with its step times");
  }
  std::vector<std::pair<std::string, std::string>> counts;
  for (const Steps& steps : all.shown) {
    counts.emplace_back(steps.label, std::to_string(steps.seconds.size()) + " steps");
  }
  chart.caption = caption + " Slowest rank of the run with the median throughput." +
                  counts_text(counts) + left_out_text(all.left_out);
  chart.table = table_of(all.shown);
  return chart;
}

// The fastest and the slowest of each stretch of steps, so that thinning hides no outlier.
std::vector<size_t> shown_steps(std::span<const double> seconds) {
  constexpr size_t most_stretches = 500;
  std::vector<size_t> shown;
  const size_t length = (seconds.size() + most_stretches - 1) / most_stretches;
  for (size_t start = 0; start < seconds.size(); start += length) {
    const auto stretch = seconds.subspan(start, std::min(length, seconds.size() - start));
    const auto [least, most] = std::ranges::minmax_element(stretch);
    const auto [first, last] = std::minmax(least, most);
    shown.push_back(start + static_cast<size_t>(first - stretch.begin()));
    if (first != last) shown.push_back(start + static_cast<size_t>(last - stretch.begin()));
  }
  return shown;
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
  script += "set yrange [0:" + plain_number(1.1 * milliseconds * most) +
            "]\nset xrange [0:" + plain_number(longest) + "]\nset xtics " +
            plain_number(tick_step(longest, most_ticks(longest))) +
            "\nset ylabel 'ms'\nset grid ytics ls 1\nset ytics " +
            plain_number(tick_step(milliseconds * most, 3)) +
            "\nset lmargin 11\nset rmargin 2\nset tmargin 1.6\nset bmargin 2\nset multiplot\n";
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string index = std::to_string(i);
    script += "set origin 0, " + plain_number((panels - 1 - static_cast<double>(i)) / panels) +
              "\nset size 1, " + plain_number(1 / panels) + "\nset title " +
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
  std::string script = chart_head(320 + 18 * static_cast<int>(all.size())) + "set xrange [" +
                       plain_number(milliseconds * (least - space)) + ":" +
                       plain_number(milliseconds * (most + space)) + "]\nset xtics " +
                       plain_number(tick_step(milliseconds * (most - least), 4)) +
                       "\nset xlabel 'step time, ms'\nset ylabel '% of the steps'\n"
                       "set yrange [0:100]\nset grid ls 1\n"
                       "set key on above vertical maxcols 1 Left reverse samplen 2\nplot ";
  for (size_t i = 0; i < all.size(); ++i) {
    script += std::string(i > 0 ? ", \\\n  " : "") +
              "$data using (column('arm') == " + std::to_string(i) +
              " ? column('milliseconds') : NaN):'percent' with lines lw 2 dt " +
              std::to_string(i % 4 + 1) + " lc rgb '" + colour(i) + "' title " +
              quoted_label(all[i].label);
  }
  return script + "\n";
}

}  // namespace

Chart step_strip_chart(const ShownArms& shown) {
  const StepsOfArms found = steps_of(shown);
  const std::vector<Steps>& all = found.shown;
  Chart chart = chart_of(found, "steps", "Step times, one after another",
                         "Every step of the timed window; the axis of step times begins at zero.");
  if (all.empty()) return chart;
  std::ostringstream csv = csv_with("panel,step,milliseconds");
  for (size_t i = 0; i < all.size(); ++i) {
    for (const size_t step : shown_steps(all[i].seconds)) {
      csv << i << ',' << step + 1 << ',' << milliseconds * all[i].seconds[step] << '\n';
    }
  }
  chart.csv = csv.str();
  chart.script = strip_script(all);
  return chart;
}

Chart step_distribution_chart(const ShownArms& shown) {
  const StepsOfArms found = steps_of(shown);
  const std::vector<Steps>& all = found.shown;
  Chart chart = chart_of(found, "distribution", "Distribution of step times",
                         "Share of the steps that took no longer. The axis of time does not begin "
                         "at zero, and ends where all arms have 99 % of their steps.");
  if (all.empty()) return chart;
  constexpr int points = 400;
  std::ostringstream csv = csv_with("arm,milliseconds,percent");
  for (size_t i = 0; i < all.size(); ++i) {
    std::vector<double> sorted(all[i].seconds.begin(), all[i].seconds.end());
    std::ranges::sort(sorted);
    const auto last = static_cast<double>(sorted.size() - 1);
    for (int point = 0; point <= points; ++point) {
      const double share = static_cast<double>(point) / points;
      csv << i << ',' << milliseconds * sorted[static_cast<size_t>(std::lround(share * last))]
          << ',' << 100 * share << '\n';
    }
  }
  chart.csv = csv.str();
  chart.script = distribution_script(all);
  return chart;
}

}  // namespace nearmetal
