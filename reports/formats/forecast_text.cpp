#include "reports/formats/forecast_text.h"

#include "base/text.h"

namespace nearmetal {
namespace {

std::string rate_text(const ForecastValue& rate) { return with_interval(rate.median, rate.band); }

std::string place_in_band(const ForecastValue& rate, double measured) {
  return rate.holds(measured) ? "within its band" : "OUTSIDE its band";
}

std::string unit_text(const ForecastPoint& point) {
  return std::string(words_of(point.sample).plural) + "/s";
}

// Negative: the VM is slower.
std::string loss_text(const ForecastValue& loss) {
  return signed_percent(-loss.median, {-loss.band.upper, -loss.band.lower});
}

std::string enough_text(const Maybe<double>& enough, double scale, const char* unit) {
  return enough ? significant(scale * *enough, 3) + unit : "-";
}

std::string behind(const std::string& side) { return side.empty() ? "" : side + ": "; }

void add_hold_outs(Page& page, const Forecast& forecast) {
  for (const HoldOut& held : forecast.basis.hold_outs) {
    page.headlines.push_back(behind(forecast.basis.side) + "error " + signed_percent(held.error()) +
                             " at '" + held.arm + "', held out: forecast " + rate_text(held.rate) +
                             " " + unit_text(forecast.points.front()) + ", measured " +
                             significant(held.measured, 5) + ", " +
                             place_in_band(held.rate, held.measured));
  }
}

void add_forecast(Page& page, const Forecast& forecast) {
  const auto& [basis, points] = forecast;
  TitledTable titled;
  titled.title = basis.side.empty() ? "Forecast" : "Forecast, " + basis.side;
  titled.legend =
      "Median and 90 % band of a run. Efficiency of each rank, against the fewest measured; it is "
      "95 % from that bandwidth, or that latency, on.";
  titled.table.columns = {
      {"ranks", true},      {"hosts", true},           {unit_text(points[0]), true},
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
  Page page{.title = "nearmetal: forecast"};
  add_hold_outs(page, forecast);
  add_forecast(page, forecast);
  return page;
}

Page forecast_page(const ForecastPair& pair) {
  Page page{.title = "nearmetal: forecast of a VM against bare metal"};
  for (const Forecast* forecast : {&pair.bare, &pair.vm}) add_hold_outs(page, *forecast);
  page.headlines.push_back(
      pair.large_loss ? "the VM loses 5 % or more from " + counted(pair.large_loss->first, "rank") +
                            " on: " + loss_text(pair.large_loss->second)
                      : "the VM loses less than 5 % at all sizes that can be forecast, up to 4096");
  add_forecast(page, pair.bare);
  add_forecast(page, pair.vm);
  return page;
}

Page forecast_check_page(const std::vector<ForecastCheck>& checks) {
  Page page{.title = "nearmetal: a forecast against what was measured"};
  TitledTable titled;
  titled.title = "Forecast against measured";
  titled.table.columns = {{"arm"},
                          {"ranks", true},
                          {"forecast, " + unit_text(*checks[0].point), true},
                          {"measured", true},
                          {"error", true},
                          {"verdict"}};
  int64_t within = 0;
  for (const ForecastCheck& check : checks) {
    const ForecastValue& rate = check.point->rate;
    within += rate.holds(check.measured) ? 1 : 0;
    titled.table.rows.push_back({check.arm, std::to_string(check.point->ranks), rate_text(rate),
                                 significant(check.measured, 5), signed_percent(check.error()),
                                 place_in_band(rate, check.measured)});
  }
  page.headlines.push_back(std::to_string(within) + " of " +
                           counted(std::ssize(checks), "measured size") +
                           " within the 90 % band of its forecast");
  page.tables.push_back(std::move(titled));
  return page;
}

}  // namespace nearmetal
