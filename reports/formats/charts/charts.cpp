#include "reports/formats/charts/charts.h"

#include "reports/sharing/fractions.h"

namespace nearmetal {
namespace {

void add_charts_of_runs(std::vector<Chart>& charts, const ShownArms& shown) {
  for (const auto chart : {throughput_chart, speedup_chart, efficiency_chart, step_strip_chart,
                           step_distribution_chart, profile_chart, rank_chart}) {
    charts.push_back(chart(shown));
  }
}

}  // namespace

std::vector<Chart> charts_of(const RunSet& set) {
  std::vector<Chart> charts;
  if (shares_a_gpu(set)) charts = fraction_charts(set);
  add_charts_of_runs(charts, shown_arms(set));
  return charts;
}

std::vector<Chart> charts_of(const RunSet& base, const RunSet& next, const Comparison& comparison) {
  std::vector<Chart> charts = {difference_chart(comparison)};
  add_charts_of_runs(charts, shown_arms(base, next, comparison));
  return charts;
}

}  // namespace nearmetal
