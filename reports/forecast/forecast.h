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

/// A way between ranks of a host, or between hosts.
struct Link {
  double bytes_per_second = 0;  // each way: of a rank, or of a host with all its ranks
  double latency_seconds = 0;   // of a message
};

struct ForecastRequest {
  std::vector<int64_t> ranks{};       // to forecast
  std::optional<int64_t> per_host{};  // ranks; none: as measured
  std::optional<Link> network{};      // between hosts; none: as measured
  std::optional<int64_t> batch{}, accumulate{};
  std::optional<GradientType> gradient_type{};
  // The shares of a run's computation after which these shares of its gradients are ready, empty
  // where that is not known; none: not known.
  std::function<std::vector<double>(const SetRun& run, const std::vector<double>& shares)> ready{};
};

/// A report of kind predicted, without tool and invocation, and of two sides the smallest power of
/// 2 of ranks, up to 4096, at which the median of what the VM loses is 5 % or more; none where
/// there is none.
struct Forecast {
  Report report;
  std::optional<std::pair<int64_t, ForecastValue>> large_loss{};
};

/// Of one side, or of bare metal and of a VM, in whose points is what it loses. Throws
/// std::invalid_argument where the runs do not tell what is asked.
Forecast forecast_of(const std::vector<RunSet>& sides, const ForecastRequest& request);

/// The points of a predicted report that were measured by now. Throws NotComparable where none is,
/// or none doing the same work, but for what may differ.
std::vector<HoldOut> check_forecast(const Report& predicted, const RunSet& measured,
                                    const std::vector<std::string>& allow_differ);

}  // namespace nearmetal
