#include "reports/formats/forecast_text.h"

#include "base/text.h"

namespace nearmetal {
namespace {

std::string rate_text(const ForecastRate& rate) { return with_interval(rate.median, rate.band); }

std::string place_in_band(bool in_band) { return in_band ? "within its band" : "OUTSIDE its band"; }

std::string unit_text(const ForecastPoint& point) {
  return std::string(words_of(point.sample).plural) + "/s";
}

void add_hold_outs(Page& page, const Forecast& forecast) {
  const std::string side = forecast.basis.side.empty() ? "" : forecast.basis.side + ": ";
  for (const HoldOut& held : forecast.basis.hold_outs) {
    page.headlines.push_back(side + "held out, '" + held.arm + "' of " +
                             counted(held.ranks, "rank") + ": forecast " +
                             rate_text(held.forecast) + " " + unit_text(forecast.points.front()) +
                             ", measured " + significant(held.measured, 5) + ": " +
                             signed_percent(held.error) + ", " + place_in_band(held.in_band));
  }
}

std::string bandwidth_text(const Maybe<double>& bits_per_second) {
  return bits_per_second ? significant(1e-9 * *bits_per_second, 3) + " Gbit/s" : "-";
}

std::string latency_text(const Maybe<double>& seconds) {
  return seconds ? significant(1e6 * *seconds, 3) + " us" : "-";
}

std::string loss_text(const ForecastLoss& loss) {
  return signed_percent(-loss.median, {-loss.band.upper, -loss.band.lower});
}

TitledTable titled_table(const std::string& title, const std::string& side) {
  TitledTable titled;
  titled.title = title + (side.empty() ? "" : ", " + side);
  return titled;
}

TitledTable rate_table(const Forecast& forecast, bool with_loss) {
  TitledTable titled = titled_table("Forecast", forecast.basis.side);
  titled.legend =
      "Median and 90 % band of a run. Efficiency is that of each rank against the fewest that were "
      "measured; 95 % of it is reached from that bandwidth or latency on, whichever is asked.";
  titled.table.columns = {{"ranks", true},
                          {"hosts", true},
                          {unit_text(forecast.points.front()) + " [90 %]", true},
                          {"efficiency", true},
                          {"dominant cost"},
                          {"95 % from", true},
                          {"or from", true}};
  if (with_loss) titled.table.columns.push_back({"VM [90 %]", true});
  for (const ForecastPoint& point : forecast.points) {
    std::vector<std::string> row = {std::to_string(point.ranks),
                                    point.hosts ? std::to_string(*point.hosts) : "-",
                                    rate_text(point.rate),
                                    percent(point.efficiency),
                                    point.dominant.empty() ? "none" : point.dominant,
                                    bandwidth_text(point.enough_bits_per_second),
                                    latency_text(point.enough_latency_seconds)};
    if (with_loss) row.push_back(point.loss ? loss_text(*point.loss) : "-");
    titled.table.rows.push_back(std::move(row));
  }
  return titled;
}

TitledTable step_table(const Forecast& forecast) {
  TitledTable titled = titled_table("A mean step", forecast.basis.side);
  titled.table.columns = {{"ranks", true}, {"part"}, {"ms", true}, {"of the step", true}};
  for (const ForecastPoint& point : forecast.points) {
    double all = 0;
    for (const ForecastTerm& term : point.terms) all += term.seconds;
    for (const ForecastTerm& term : point.terms) {
      titled.table.rows.push_back({std::to_string(point.ranks), term.name,
                                   significant(1e3 * term.seconds), percent(term.seconds / all)});
    }
  }
  return titled;
}

void add_forecast(Page& page, const Forecast& forecast, bool with_loss = false) {
  page.tables.push_back(rate_table(forecast, with_loss));
  page.tables.push_back(step_table(forecast));
  const std::string side = forecast.basis.side.empty() ? "" : forecast.basis.side + ": ";
  for (const ForecastPoint& point : forecast.points) {
    for (const auto* enough : {&point.enough_bits_per_second, &point.enough_latency_seconds}) {
      if (!*enough && forecast.basis.has_exchange) {
        add_new(page.remarks, side + counted(point.ranks, "rank") + ": " + enough->reason);
      }
    }
  }
  page.remarks.push_back(side + "rests on " + shortened(joined(forecast.basis.arms)) +
                         (forecast.basis.has_exchange ? ", with the times of their sums" : ""));
  for (const std::string& text : forecast.basis.assumptions) page.remarks.push_back(side + text);
}

}  // namespace

Page forecast_page(const std::vector<Forecast>& forecasts) {
  Page page{.title = "nearmetal: forecast"};
  for (const Forecast& forecast : forecasts) add_hold_outs(page, forecast);
  for (const Forecast& forecast : forecasts) add_forecast(page, forecast);
  return page;
}

Page forecast_page(const ForecastPair& pair) {
  Page page{.title = "nearmetal: forecast of a VM against bare metal"};
  for (const Forecast* forecast : {&pair.bare, &pair.vm}) add_hold_outs(page, *forecast);
  page.headlines.push_back(
      pair.first_large_loss ? "the VM is foretold to lose " + plain_percent(large_loss) +
                                  " or more from " + counted(pair.first_large_loss->first, "rank") +
                                  " on: " + loss_text(pair.first_large_loss->second)
                            : "the VM is foretold to lose less than " + plain_percent(large_loss) +
                                  " at all sizes that could be foretold, up to 4096 ranks");
  add_forecast(page, pair.bare);
  add_forecast(page, pair.vm, true);
  return page;
}

Page forecast_check_page(const std::vector<ForecastCheck>& checks) {
  Page page{.title = "nearmetal: a forecast against what was measured"};
  TitledTable titled = titled_table("Forecast against measured", "");
  titled.table.columns = {{"arm"},
                          {"ranks", true},
                          {"forecast, " + unit_text(*checks.front().point) + " [90 %]", true},
                          {"measured", true},
                          {"error", true},
                          {"verdict"}};
  int64_t within = 0;
  for (const ForecastCheck& check : checks) {
    within += check.in_band ? 1 : 0;
    titled.table.rows.push_back({check.arm, std::to_string(check.point->ranks),
                                 rate_text(check.point->rate), significant(check.measured, 5),
                                 signed_percent(check.error), place_in_band(check.in_band)});
  }
  page.headlines.push_back(std::to_string(within) + " of " +
                           counted(std::ssize(checks), "forecast") +
                           " held what was measured within the 90 % band");
  page.tables.push_back(std::move(titled));
  return page;
}

}  // namespace nearmetal
