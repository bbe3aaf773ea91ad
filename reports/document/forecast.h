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

/// Confidence of the band of a forecast.
inline constexpr double forecast_confidence = 0.9;

/// The median of a forecast and its band, in samples per second of all ranks.
struct ForecastRate {
  double median = 0;
  Interval band{};
};

/// The largest size that was measured, as the smaller ones alone foretell it.
struct HoldOut {
  std::string arm;
  int64_t ranks = 1;
  double measured = 0;  // samples per second of all ranks
  ForecastRate forecast;
  double error = 0;  // forecast / measured - 1
  bool in_band = false;

  bool operator==(const HoldOut& other) const { return arm == other.arm; }
};

/// What forecasts rest on.
struct ForecastBasis {
  std::string side{};                      // "bare metal" or "VM"; empty: there is one alone
  std::vector<std::string> arms{};         // measured ones, by ranks
  bool has_exchange = false;               // whether times of sums are known; else throughput alone
  std::vector<std::string> assumptions{};  // for readers
  std::vector<HoldOut> hold_outs{};        // arms of the most ranks
  std::map<std::string, std::string> work;  // the comparable key without its layout
};

/// A part of a step, on the average, and what it is for.
struct ForecastTerm {
  std::string name;
  double seconds = 0;
};

/// What virtualisation costs at this size: 1 - VM / bare metal.
struct ForecastLoss {
  double median = 0;
  Interval band{};
};

/// A size that was not measured.
struct ForecastPoint {
  int64_t basis = 0;  // index into Report::forecasts
  int64_t ranks = 1;
  std::optional<int64_t> hosts{};  // null: not told
  std::optional<double> batch{};   // samples of a rank and micro-batch; null: not told
  int64_t accumulate = 1;
  SampleUnit sample = SampleUnit::image;
  ForecastRate rate;
  double efficiency = 1;              // of each rank, against the fewest that were measured
  std::vector<ForecastTerm> terms{};  // they add up to a mean step
  std::string dominant{};             // the largest of them but for the computation; empty: none
  // From which a rank reaches 95 % of what the fewest did, by the network between hosts, or the
  // links inside where there is one host.
  Maybe<double> enough_bits_per_second = Unknown{"throughput alone tells of no network"};
  Maybe<double> enough_latency_seconds = Unknown{"throughput alone tells of no network"};
  std::optional<ForecastLoss> loss{};  // of a VM, where both sides were measured
};

}  // namespace nearmetal
