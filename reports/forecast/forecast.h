// What sizes that were not measured would do, from those that were, and how far such a forecast is
// off where it can be tried.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reports/compare/run_set.h"
#include "reports/document/forecast.h"
#include "reports/document/run_config.h"

namespace nearmetal {

struct GivenNetwork {
  double bits_per_second = 0;  // of a host, each way
  double latency_seconds = 0;  // of a message between hosts
};

struct ForecastRequest {
  std::vector<int64_t> ranks{};       // to foretell
  std::optional<int64_t> per_host{};  // ranks; none: as measured
  std::optional<GivenNetwork> network{};
  std::optional<int64_t> batch{}, accumulate{};
  std::optional<GradientType> gradient_type{};
  // The shares of a run's computation after which these shares of its gradients are ready, empty
  // where that is not known; none: not known.
  std::function<std::vector<double>(const SetRun& run, const std::vector<double>& shares)> ready{};
};

struct Forecast {
  ForecastBasis basis;
  std::vector<ForecastPoint> points;  // by request
};

/// Of one side, with the hold-out first: sizes of fewer ranks than the most. Throws
/// std::invalid_argument where the runs do not tell what is asked.
Forecast forecast_of(const RunSet& set, const ForecastRequest& request);

/// Both sides of these names, and in the points of the VM what it loses against bare metal. Points
/// of further numbers of ranks, powers of 2 up to 65,536, may be added to find from where on a VM
/// loses 5 %: `losses` has the first whose median does, or is empty.
struct ForecastPair {
  Forecast bare, vm;
  std::optional<std::pair<int64_t, ForecastLoss>> first_large_loss{};
};
inline constexpr double large_loss = 0.05;
ForecastPair forecast_pair(const RunSet& bare, const RunSet& vm, const ForecastRequest& request);

/// The forecasts as a report of kind predicted, without tool and invocation.
Report predicted_report(const std::vector<Forecast>& forecasts);

/// A point of a report beside what was measured later.
struct ForecastCheck {
  std::string arm;             // measured
  const ForecastPoint* point;  // of the same ranks
  double measured = 0;         // samples per second, the mean of runs
  double error = 0;            // forecast / measured - 1
  bool in_band = false;
};

/// The points of a predicted report that were measured by now. Throws NotComparable where none is,
/// or where what must agree does not, but for `allow_differ`.
std::vector<ForecastCheck> check_forecast(const Report& predicted, const RunSet& measured,
                                          const std::vector<std::string>& allow_differ);

}  // namespace nearmetal
