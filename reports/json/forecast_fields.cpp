#include "reports/json/forecast_fields.h"

#include <cmath>

#include "base/errors.h"

namespace nearmetal {
namespace {

// Of figures with at least four digits.
bool are_close(double a, double b) { return std::abs(a - b) <= 1e-3 * std::max(1.0, std::abs(b)); }

}  // namespace

void require_consistent_forecasts(const Report& report) {
  const auto require = [](bool holds, const std::string& place, const char* must) {
    if (!holds) throw InvalidReport(place + " " + must);
  };
  for (size_t i = 0; i < report.forecasts.size(); ++i) {
    for (size_t j = 0; j < report.forecasts[i].hold_outs.size(); ++j) {
      const HoldOut& held = report.forecasts[i].hold_outs[j];
      const std::string place =
          "/forecasts/" + std::to_string(i) + "/hold_outs/" + std::to_string(j);
      require(are_close(held.error, held.forecast.median / held.measured - 1), place + "/error",
              "is not that of the forecast against what was measured");
      require(held.in_band == (held.forecast.band.lower <= held.measured &&
                               held.measured <= held.forecast.band.upper),
              place + "/in_band", "is not what the band says");
    }
  }
  for (size_t i = 0; i < report.arms.size(); ++i) {
    const ForecastPoint& point = *report.arms[i].forecast;
    const std::string place = "/arms/" + std::to_string(i) + "/forecast";
    require(point.basis < std::ssize(report.forecasts), place + "/basis",
            "is no index into forecasts");
    require(point.rate.band.lower <= point.rate.band.upper, place + "/lower",
            "is above the upper bound");
  }
}

namespace json {

void fields(Archive& field, ForecastTerm& term) {
  field.type("forecast_term", "A part of a step");
  field("name", term.name);
  field("seconds", term.seconds, "On the average");
}

void fields(Archive& field, ForecastLoss& loss) {
  field.type("forecast_loss", "1 - VM / bare metal");
  field("median", loss.median);
  field("lower", loss.band.lower, "Of the 90 % band");
  field("upper", loss.band.upper);
}

void fields(Archive& field, HoldOut& held) {
  field.type("hold_out",
             "The arms of the most ranks, as those of fewer foretell them; samples per second of "
             "all ranks");
  field("arm", held.arm);
  field("ranks", held.ranks, at_least(1));
  field("measured", held.measured, above(0));
  field("median", held.forecast.median, above(0));
  field("lower", held.forecast.band.lower, above(0), "Of the 90 % band");
  field("upper", held.forecast.band.upper, above(0));
  field("error", held.error, "Forecast / measured - 1");
  field("in_band", held.in_band);
}

void fields(Archive& field, ForecastBasis& basis) {
  field.type("forecast_basis", "What forecasts rest on");
  field("side", basis.side, "bare metal or VM; empty: there is one side alone");
  field("arms", basis.arms, "Measured ones, by their ranks");
  field("has_exchange", basis.has_exchange,
        "Whether the times of sums are known; else throughput alone");
  field("hold_outs", basis.hold_outs);
  field("assumptions", basis.assumptions);
  field("work", basis.work, "What must agree with runs that it is compared with");
}

void fields(Archive& field, ForecastPoint& point) {
  field.type("forecast", "A size that was not measured");
  field("basis", point.basis, at_least(0), "Index into forecasts");
  field("ranks", point.ranks, at_least(1));
  field("hosts", point.hosts, at_least(1), "null: not told");
  field("batch", point.batch, above(0), "Of a rank and micro-batch; null: not told");
  field("accumulate", point.accumulate, at_least(1), "Micro-batches of a step");
  field.unit("sample", point.sample);
  field(field.words().throughput_key, point.rate.median, above(0), "Of all ranks: the median");
  field("lower", point.rate.band.lower, above(0), "Of its 90 % band");
  field("upper", point.rate.band.upper, above(0));
  field("efficiency", point.efficiency, above(0),
        "Of each rank, against the fewest that were measured");
  field("terms", point.terms, "They add up to a mean step");
  field("dominant", point.dominant, "The largest of them beside computation; empty: none");
  field("enough_bits_per_second", point.enough_bits_per_second, above(0),
        "Of the network between hosts, or of the links where there is one host: from there on a "
        "rank reaches 95 % of what the fewest did");
  field("enough_latency_seconds", point.enough_latency_seconds, above(0), "The same of latency");
  field("loss", point.loss, "What a VM loses against bare metal; null: one side was measured");
}

}  // namespace json
}  // namespace nearmetal
