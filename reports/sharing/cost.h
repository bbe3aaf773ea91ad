// How long a training takes at a measured throughput, and its cost: reports hold no prices.
#pragma once

#include <cstdint>
#include <optional>

#include "reports/compare/run_set.h"

namespace nearmetal {

/// Amounts of money are in the user's currency.
struct CostRequest {
  std::optional<double> price_per_gpu_hour{}, price_per_kwh{};
  std::optional<double> samples{}, epochs{};  // to train; neither: what is usual for the network
  std::optional<double> deadline_hours{}, budget{};
  std::optional<int64_t> gpus_per_host{};  // paid, used or not; none: those used
  bool asked() const { return price_per_gpu_hour || price_per_kwh || samples || epochs; }
};

/// Throws std::invalid_argument for what does not go together, or with that form of output.
void check(const CostRequest& request, bool form_has_costs = true);

/// Fills Run::costs: of several networks trained at once that of each. A GPU counts as a whole,
/// whoever shares it. Notes say what costs are of and, behind `side`, which arm is the cheapest and
/// which the fastest of those whose whole intervals meet the limits.
void add_costs(RunSet& set, const CostRequest& request, const std::string& side = "");

}  // namespace nearmetal
