#include "reports/formats/forecast_text.h"

#include "base/text.h"

namespace nearmetal {
namespace {

std::string rate_text(const ForecastValue& rate) { return with_interval(rate.median, rate.band); }

std::string place_in_band(const ForecastValue& rate, double measured) {
  return rate.holds(measured) ? "within its band" : "OUTSIDE its band";
}

std::string unit_text(SampleUnit unit) { return std::string(words_of(unit).plural) + "/s"; }

// Negative: the VM is slower.
std::string loss_text(const ForecastValue& loss) {
  return signed_percent(-loss.median, {-loss.band.upper, -loss.band.lower});
}

std::string enough_text(const Maybe<double>& enough, double scale, const char* unit) {
  return enough ? significant(scale * *enough, 3) + unit : "-";
}

std::string behind(const std::string& side) { return side.empty() ? "" : side + ": "; }

std::string hold_out_text(const HoldOut& held, const ForecastBasis& basis, SampleUnit unit) {
  return behind(basis.side) + "error " + signed_percent(held.error()) + " at '" + held.arm +
         "', held out: forecast " + rate_text(held.rate) + " " + unit_text(unit) + ", measured " +
         significant(held.measured, 5) + ", " + place_in_band(held.rate, held.measured);
}

// Of one side.
void add_forecast(Page& page, const ForecastBasis& basis,
                  const std::vector<ForecastPoint>& points) {
  TitledTable titled;
  titled.title = basis.side.empty() ? "Forecast" : "Forecast, " + basis.side;
  titled.legend =
      "Median and 90 % band of a run. Efficiency of each rank, against the fewest measured; it is "
      "95 % from that bandwidth, or that latency, on.";
  titled.table.columns = {
      {"ranks", true},      {"hosts", true},           {unit_text(points[0].sample), true},
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
      add_new(page.remarks, behind(basis.side) + "95 % at " + counted(point.ranks, "rank") + ": " +
                                enough->reason);
    }
  }
  page.tables.push_back(std::move(titled));
  page.remarks.push_back(behind(basis.side) + "by " + shortened(joined(basis.arms)) +
                         (basis.has_exchange ? ", with the times of their sums" : ""));
  for (const std::string& text : basis.assumptions) {
    page.remarks.push_back(behind(basis.side) + text);
  }
}

}  // namespace

Page forecast_page(const Forecast& forecast) {
  const std::vector<ForecastBasis>& sides = forecast.report.forecasts;
  const bool is_pair = sides.size() > 1;
  Page page{.title =
                is_pair ? "nearmetal: forecast of a VM against bare metal" : "nearmetal: forecast"};
  std::vector<std::vector<ForecastPoint>> points(sides.size());
  for (const Arm& arm : forecast.report.arms) points[arm.forecast->basis].push_back(*arm.forecast);
  for (size_t i = 0; i < sides.size(); ++i) {
    for (const HoldOut& held : sides[i].hold_outs) {
      page.headlines.push_back(hold_out_text(held, sides[i], points[i][0].sample));
    }
  }
  if (is_pair) {
    const auto& large_loss = forecast.large_loss;
    page.headlines.push_back(
        large_loss ? "the VM loses 5 % or more from " + counted(large_loss->first, "rank") +
                         " on: " + loss_text(large_loss->second)
                   : "the VM loses less than 5 % at all sizes that can be forecast, up to 4096");
  }
  for (size_t i = 0; i < sides.size(); ++i) add_forecast(page, sides[i], points[i]);
  return page;
}

Page forecast_check_page(const std::vector<HoldOut>& checks, SampleUnit unit) {
  Page page{.title = "nearmetal: a forecast against what was measured"};
  TitledTable titled;
  titled.title = "Forecast against measured";
  titled.table.columns = {
      {"arm"},         {"ranks", true}, {"forecast, " + unit_text(unit), true}, {"measured", true},
      {"error", true}, {"verdict"}};
  int64_t within = 0;
  for (const HoldOut& check : checks) {
    within += check.rate.holds(check.measured) ? 1 : 0;
    titled.table.rows.push_back({check.arm, std::to_string(check.ranks), rate_text(check.rate),
                                 significant(check.measured, 5), signed_percent(check.error()),
                                 place_in_band(check.rate, check.measured)});
  }
  page.headlines.push_back(std::to_string(within) + " of " +
                           counted(std::ssize(checks), "measured size") +
                           " within the 90 % band of its forecast");
  page.tables.push_back(std::move(titled));
  return page;
}

}  // namespace nearmetal
