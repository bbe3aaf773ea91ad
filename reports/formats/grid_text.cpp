#include "reports/formats/grid_text.h"

#include "reports/compare/comparison_row.h"
#include "reports/compare/grid_curves.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

std::string throughput_text(const RunArm& arm) {
  const Metric& metric = throughput_metric(unit_of(arm));
  return mean_text(summary_of_arm(arm, metric), metric);
}

std::string batch_text(const GridCurve& curve, const CurvePoint& point) {
  return curve.setting + " " + point.value;
}

}  // namespace

std::vector<TitledTable> knee_tables(const RunSet& set) {
  TextTable table{{{"settings"},
                   {"knee"},
                   {std::string(words_of(units_of(set)).rate) + " [95 %]", true},
                   {"% of the best [95 %]", true},
                   {"best"}},
                  {}};
  for (const GridCurve& curve : grid_curves(set)) {
    const std::optional<Knee> knee = knee_of(curve);
    if (!knee) continue;
    table.rows.push_back(
        {curve.others.empty() ? "all" : curve.others, batch_text(curve, *knee->point),
         throughput_text(*knee->point->arm), estimate_text(knee->share, knee->interval, 100),
         batch_text(curve, *knee->best) + (knee->best_is_largest ? ", the largest that ran" : "")});
  }
  if (table.rows.empty()) return {};
  return {{"The smallest batch within " + plain_percent(1 - least_share_at_knee) + " of the best",
           std::move(table)}};
}

}  // namespace nearmetal
