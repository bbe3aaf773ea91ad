// What a report of kind predicted holds: what sizes that were not measured would do, and how far
// such a forecast was off where it could be tried.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/value.h"
#include "models/sample_unit.h"

namespace nearmetal {

/// What a forecast says of a figure.
struct ForecastValue {
  double median = 0;
  Interval band{};  // 90 %
  bool holds(double value) const { return band.lower <= value && value <= band.upper; }
};

/// An arm that was measured beside its forecast, in samples per second of all ranks: one of the
/// most ranks, held out, or one that was measured later.
struct HoldOut {
  std::string arm;
  int64_t ranks = 1;
  double measured = 0;
  ForecastValue rate;
  double error() const { return rate.median / measured - 1; }
};

/// What forecasts rest on.
struct ForecastBasis {
  std::string side{};                      // "bare metal" or "VM"; empty: there is one alone
  std::vector<std::string> arms{};         // by ranks
  bool has_exchange = false;               // the times of sums are known; else throughput alone
  std::vector<std::string> assumptions{};  // for readers
  std::vector<HoldOut> hold_outs{};
  std::map<std::string, std::string> work;  // the comparable key without its layout
};

/// A part of a step, of possibilities around the median.
struct ForecastTerm {
  std::string name;
  double seconds = 0;
};

/// A size that was not measured.
struct ForecastPoint {
  int64_t basis = 0;  // index into Report::forecasts
  int64_t ranks = 1;
  std::optional<int64_t> hosts{};  // null: not told
  std::optional<double> batch{};   // samples of a rank and micro-batch; null: not told
  int64_t accumulate = 1;
  SampleUnit sample = SampleUnit::image;
  ForecastValue rate;                 // samples per second of all ranks
  double efficiency = 1;              // of each rank, against the fewest that were measured
  std::vector<ForecastTerm> terms{};  // of a step; where the batch is not told, of a sample
  std::string dominant{};             // the largest of them beside computation; empty: none
  // From which on the efficiency is 95 %, by the network between hosts, or inside the only one.
  Maybe<double> enough_bits_per_second{}, enough_latency_seconds{};
  std::optional<ForecastValue> loss{};  // 1 - VM / bare metal, where both were measured
};

}  // namespace nearmetal
