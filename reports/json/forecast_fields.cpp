#include "reports/json/forecast_fields.h"

#include "base/errors.h"

namespace nearmetal {

void require_consistent_forecasts(const Report& report) {
  for (size_t i = 0; i < report.arms.size(); ++i) {
    const ForecastPoint& point = *report.arms[i].forecast;
    const std::string place = "/arms/" + std::to_string(i) + "/forecast";
    if (point.basis >= std::ssize(report.forecasts)) {
      throw InvalidReport(place + "/basis is no index into forecasts");
    }
    if (!point.rate.holds(point.rate.median)) {
      throw InvalidReport(place + "/rate/median is outside its band");
    }
  }
}

namespace json {

void fields(Archive& field, ForecastValue& value) {
  field.type("forecast_value", "A median and its 90 % band");
  field("median", value.median);
  field("lower", value.band.lower);
  field("upper", value.band.upper);
}

void fields(Archive& field, ForecastTerm& term) {
  field.type("forecast_term", "A part of a step, of possibilities around the median");
  field("name", term.name);
  field("seconds", term.seconds);
}

void fields(Archive& field, HoldOut& held) {
  field.type("hold_out", "An arm of the most ranks, as those of fewer alone forecast it");
  field("arm", held.arm);
  field("ranks", held.ranks, at_least(1));
  field("measured", held.measured, above(0), "Samples per second of all ranks");
  field("rate", held.rate, "The forecast of that");
}

void fields(Archive& field, ForecastBasis& basis) {
  field.type("forecast_basis", "What forecasts rest on");
  field("side", basis.side, "bare metal or VM; empty: there is one side alone");
  field("arms", basis.arms, "By their ranks");
  field("has_exchange", basis.has_exchange, "The times of sums are known; else throughput alone");
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
  field("rate", point.rate, "Samples per second of all ranks");
  field("efficiency", point.efficiency, above(0),
        "Of each rank, against the fewest that were measured");
  field("terms", point.terms, "They add up to a step, or to a sample's where no batch is told");
  field("dominant", point.dominant, "The largest of them beside computation; empty: none");
  field("enough_bits_per_second", point.enough_bits_per_second, above(0),
        "From which on the efficiency is 95 %, between hosts, or inside the only one");
  field("enough_latency_seconds", point.enough_latency_seconds, above(0), "The same of latency");
  field("loss", point.loss, "1 - VM / bare metal; null: one side was measured");
}

}  // namespace json
}  // namespace nearmetal
