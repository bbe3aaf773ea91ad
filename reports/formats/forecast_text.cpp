#include "reports/formats/forecast_text.h"

#include <algorithm>

#include "base/text.h"

namespace nearmetal {
namespace {

std::string rate_text(const ForecastValue& rate) { return with_interval(rate.median, rate.band); }

bool is_in_band(const HoldOut& held) { return held.rate.holds(held.measured); }

std::string place_in_band(const HoldOut& held) {
  return is_in_band(held) ? "within its band" : "OUTSIDE its band";
}

std::string unit_text(SampleUnit unit) { return std::string(words_of(unit).plural) + "/s"; }

// Negative: the VM is slower.
std::string loss_text(const ForecastValue& loss) {
  return signed_percent(-loss.median, {-loss.band.upper, -loss.band.lower});
}

std::string enough_text(const Maybe<double>& enough, double scale, const char* unit) {
  return enough ? significant(scale * *enough, 3) + unit : "-";
}

void add_side(Page& page, const ForecastBasis& basis, const std::vector<ForecastPoint>& points) {
  const std::string side = basis.side.empty() ? "" : basis.side + ": ";
  const std::string unit = unit_text(points[0].sample);
  for (const HoldOut& held : basis.hold_outs) {
    page.headlines.push_back(side + "error " + signed_percent(held.error()) + " at '" + held.arm +
                             "', held out: forecast " + rate_text(held.rate) + " " + unit +
                             ", measured " + significant(held.measured, 5) + ", " +
                             place_in_band(held));
  }
  TitledTable& titled = page.tables.emplace_back();
  titled.title = basis.side.empty() ? "Forecast" : "Forecast, " + basis.side;
  titled.legend =
      "Median and 90 % band of a run. Efficiency of each rank, against the fewest measured; it is "
      "95 % from that bandwidth, or that latency, on.";
  titled.table.columns = {{"ranks", true},      {"hosts", true},           {unit, true},
                          {"efficiency", true}, {"dominant cost"},         {"95 % from", true},
                          {"or from", true},    {"VM to bare metal", true}};
  const bool has_loss = points[0].loss.has_value();
  if (!has_loss) titled.table.columns.pop_back();
  for (const ForecastPoint& point : points) {
    titled.table.rows.push_back({std::to_string(point.ranks),
                                 point.hosts ? std::to_string(*point.hosts) : "-",
                                 rate_text(point.rate), percent(point.efficiency),
                                 point.dominant.empty() ? "none" : point.dominant,
                                 enough_text(point.enough_bits_per_second, 1e-9, " Gbit/s"),
                                 enough_text(point.enough_latency_seconds, 1e6, " us")});
    if (has_loss) titled.table.rows.back().push_back(loss_text(*point.loss));
    for (const auto* enough : {&point.enough_bits_per_second, &point.enough_latency_seconds}) {
      if (*enough || !basis.has_exchange || point.ranks == 1) continue;
      add_new(page.remarks,
              side + "95 % at " + counted(point.ranks, "rank") + ": " + enough->reason);
    }
  }
  page.remarks.push_back(side + "by " + shortened(joined(basis.arms)) +
                         (basis.has_exchange ? ", with the times of their sums" : ""));
  for (const std::string& text : basis.assumptions) page.remarks.push_back(side + text);
}

}  // namespace

Page forecast_page(const Forecast& forecast) {
  const std::vector<ForecastBasis>& sides = forecast.report.forecasts;
  const bool is_pair = sides.size() > 1;
  Page page{.title =
                is_pair ? "nearmetal: forecast of a VM against bare metal" : "nearmetal: forecast"};
  std::vector<std::vector<ForecastPoint>> points(sides.size());
  for (const Arm& arm : forecast.report.arms) points[arm.forecast->basis].push_back(*arm.forecast);
  for (size_t i = 0; i < sides.size(); ++i) add_side(page, sides[i], points[i]);
  if (is_pair) {
    const auto& large_loss = forecast.large_loss;
    page.headlines.push_back(
        large_loss ? "the VM loses 5 % or more from " + counted(large_loss->first, "rank") +
                         " on: " + loss_text(large_loss->second)
                   : "the VM loses less than 5 % at all sizes that can be forecast, up to 4096");
  }
  return page;
}

Page forecast_check_page(const std::vector<HoldOut>& checks, SampleUnit unit) {
  Page page{.title = "nearmetal: a forecast against what was measured"};
  TitledTable& titled = page.tables.emplace_back();
  titled.title = "Forecast against measured";
  titled.table.columns = {
      {"arm"},         {"ranks", true}, {"forecast, " + unit_text(unit), true}, {"measured", true},
      {"error", true}, {"verdict"}};
  for (const HoldOut& check : checks) {
    titled.table.rows.push_back({check.arm, std::to_string(check.ranks), rate_text(check.rate),
                                 significant(check.measured, 5), signed_percent(check.error()),
                                 place_in_band(check)});
  }
  const auto within = std::ranges::count_if(checks, is_in_band);
  page.headlines.push_back(std::to_string(within) + " of " +
                           counted(std::ssize(checks), "measured size") +
                           " within the 90 % band of its forecast");
  return page;
}

}  // namespace nearmetal
