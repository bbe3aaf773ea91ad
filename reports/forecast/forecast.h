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
  std::vector<int64_t> ranks{};       // to forecast
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

/// Of one side. Throws std::invalid_argument where the runs do not tell what is asked.
Forecast forecast_of(const RunSet& set, const ForecastRequest& request);

/// Both sides, and in the points of the VM what it loses. `large_loss`: the smallest power of 2 of
/// ranks, up to 4096, at which the median of that is 5 % or more; none where there is none.
struct ForecastPair {
  Forecast bare, vm;
  std::optional<std::pair<int64_t, ForecastValue>> large_loss{};
};
ForecastPair forecast_pair(const RunSet& bare, const RunSet& vm, const ForecastRequest& request);

/// The forecasts as a report of kind predicted, without tool and invocation.
Report predicted_report(const std::vector<Forecast>& forecasts);

/// A point of a report beside what was measured later.
struct ForecastCheck {
  std::string arm;             // measured
  const ForecastPoint* point;  // of the same ranks
  double measured = 0;         // samples per second, the mean of runs

  double error() const { return point->rate.median / measured - 1; }
};

/// The points of a predicted report that were measured by now. Throws NotComparable where none is,
/// or none doing the same work, but for what may differ.
std::vector<ForecastCheck> check_forecast(const Report& predicted, const RunSet& measured,
                                          const std::vector<std::string>& allow_differ);

}  // namespace nearmetal
