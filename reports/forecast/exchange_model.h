// What a step of several ranks takes beyond computation, by the measured times of its sums.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "reports/forecast/forecast.h"
#include "reports/forecast/measured_sizes.h"
#include "reports/forecast/step_simulation.h"

namespace nearmetal {

/// Seconds of a mean step: waiting for the slowest rank, sums that no computation hides by their
/// bytes and by their latency, and computation that takes longer beside sums.
using ExchangeParts = std::array<double, 4>;

/// Whether a run of the size tells how long its sums take.
bool has_sums(const MeasuredSize& size);

class ExchangeModel {
 public:
  /// Steps are those of `steps`; links are fitted to their sums, or where they have none, to those
  /// of `all`, which took place with nothing else going on. `per_host`: ranks. Throws
  /// std::invalid_argument where --gradient-type cannot be answered.
  ExchangeModel(const std::vector<MeasuredSize>& steps, const std::vector<MeasuredSize>& all,
                const ForecastRequest& request, int64_t per_host);

  /// A size that was measured, with its own settings and network. `slows`: whether what steps take
  /// more is held to be computation beside sums.
  ExchangeParts measured_parts(int64_t ranks, int64_t per_host, bool slows) const;
  /// One that is asked for, where sums reach this share of a network that was given.
  ExchangeParts asked_parts(int64_t ranks, bool slows, double reached) const;

  /// From which on a step takes at most this beyond computation, the rest of the network being as
  /// it is. Unknown where no network does.
  Maybe<double> enough_bits_per_second(int64_t ranks, double seconds) const;
  Maybe<double> enough_latency_seconds(int64_t ranks, double seconds) const;

  bool crosses_hosts(int64_t ranks) const { return ranks > asked_.per_host; }
  /// Whether sums of so many can be told.
  bool can_sum(int64_t ranks) const {
    return !crosses_hosts(ranks) || asked_.between.bytes_per_second > 0;
  }
  double slowing() const { return slowing_; }  // of computation beside a sum: 1 is twice the time
  std::vector<std::string> assumptions() const;

 private:
  void fit_slowing(const MeasuredSize& size);
  Maybe<double> enough(int64_t ranks, double seconds, double least,
                       void (*set)(Link& link, double value)) const;

  SimulatedJob measured_, asked_;
  double slowing_ = 0;
  bool ready_is_known_ = false;
};

}  // namespace nearmetal
