#include "reports/formats/charts/charts.h"

#include <algorithm>
#include <cmath>

#include "reports/formats/charts/scaling_charts.h"
#include "reports/formats/charts/step_charts.h"
#include "reports/formats/charts/sweep_charts.h"
#include "reports/sharing/fractions.h"

namespace nearmetal {
namespace {

std::string verdict_colour(Verdict verdict) {
  switch (verdict) {
    case Verdict::slower:
      return colour(4);
    case Verdict::equivalent:
    case Verdict::faster:
      return colour(2);
    default:
      return colour(1);
  }
}

std::string difference_script(const Comparison& comparison, const std::vector<std::string>& rows,
                              double least, double most) {
  const double margin = log_margin(comparison.options.rule);
  const std::string lower = plain_number(100 * std::expm1(margin));
  const std::string upper = plain_number(100 * std::expm1(-margin));
  std::string script =
      chart_head(height_of_rows(rows.size())) + row_axis(rows) +
      axis('x', least, most, tick_step(most - least, 6), "difference, %") +
      "set grid xtics ls 1\nset object 1 rectangle from first " + lower + ", graph 0 to first " +
      upper +
      ", graph 1 fs solid 0.25 noborder fc rgb '#888888' behind\n"
      "set arrow 1 from first 0, graph 0 to first 0, graph 1 nohead lw 1 lc rgb 'black'\nplot ";
  for (const Verdict verdict :
       {Verdict::slower, Verdict::inconclusive, Verdict::equivalent, Verdict::faster}) {
    script += "$data using (strcol('verdict') eq '" + std::string(to_string(verdict)) +
              "' ? column('difference') : NaN):'position':'lower':'upper' with xerrorbars pt 7 "
              "ps 0.8 lw 2 lc rgb '" +
              verdict_colour(verdict) + "' notitle, \\\n  ";
  }
  return script +
         "$data using 'difference':'position':(strcol('text')) with labels center offset 0,0.8 "
         "font ',12' notitle\n";
}

void add_charts_of_runs(std::vector<Chart>& charts, const ShownArms& shown) {
  for (const auto chart : {throughput_chart, speedup_chart, efficiency_chart, step_strip_chart,
                           step_distribution_chart, profile_chart}) {
    charts.push_back(chart(shown));
  }
  Chart of_stages = pipeline_chart(shown);
  if (of_stages.missing.empty()) charts.push_back(std::move(of_stages));
}

}  // namespace

Chart difference_chart(const Comparison& comparison) {
  Chart chart{.name = "difference", .title = "Difference"};
  std::ostringstream csv = csv_with("position,row,verdict,difference,lower,upper,text");
  std::vector<std::string> rows;
  TextTable counts{.columns = {{"row"}, {"n"}}};
  double least = 100 * std::expm1(log_margin(comparison.options.rule));
  double most = -least;
  const bool several = comparison.options.metrics.size() > 1;
  for (const ComparisonRow& row : comparison.rows) {
    if (!row.difference_interval || rows.size() == most_rows) continue;
    const Interval percent{100 * row.difference_interval->lower,
                           std::min(1e6, 100 * row.difference_interval->upper)};
    const std::string name = title_of(row) + (several ? " " + row.metric : "");
    csv << rows.size() << ',' << quoted_label(name) << ',' << to_string(row.verdict) << ','
        << 100 * *row.difference << ',' << percent.lower << ',' << percent.upper << ','
        << signed_percent(*row.difference) << '\n';
    rows.push_back(name);
    counts.rows.push_back(
        {name, std::to_string(row.base_side.runs) + "|" + std::to_string(row.new_side.runs)});
    least = std::min(least, percent.lower);
    most = std::max(most, percent.upper);
  }
  if (rows.empty())
    return missing_chart(chart, "no row has an interval, which takes 2 runs a side that vary");
  const double space = 0.08 * (most - least);
  const DecisionRule& rule = comparison.options.rule;
  chart.caption = "Difference of the geometric means, with the " +
                  plain_percent(1 - 2 * rule.alpha) +
                  " interval that the verdict rests on; grey: the margin of " +
                  plain_percent(rule.margin) + "." + counts_text(counts);
  chart.csv = csv.str();
  chart.script = difference_script(comparison, rows, least - space, most + space);
  return chart;
}

std::vector<Chart> charts_of(const GroupedRuns& runs) {
  std::vector<Chart> charts;
  if (shares_a_device(runs.all)) charts = fraction_charts(runs.all);
  for (Chart& chart : grid_charts(runs.all)) charts.push_back(std::move(chart));
  add_charts_of_runs(charts, shown_arms(runs));
  return charts;
}

std::vector<Chart> charts_of(const RunSet& base, const RunSet& next, const Comparison& comparison) {
  std::vector<Chart> charts = {difference_chart(comparison)};
  add_charts_of_runs(charts, shown_arms(base, next, comparison));
  return charts;
}

}  // namespace nearmetal
