// What a step of several ranks takes beyond computation, by the measured times of its sums.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reports/forecast/forecast.h"
#include "reports/forecast/measured_sizes.h"
#include "reports/forecast/step_simulation.h"

namespace nearmetal {

/// Seconds of a mean step.
struct ExchangeParts {
  double waiting = 0;  // for the slowest rank
  double bytes = 0;    // of sums that no computation hides, by their bytes
  double latency = 0;  // the same, by their messages
  double slowing = 0;  // of computation beside sums

  double seconds() const { return waiting + bytes + latency + slowing; }
};

/// Whether a run of the size tells how long its sums take.
bool has_sums(const MeasuredSize& size);

class ExchangeModel {
 public:
  /// Steps are those of `steps` alone; links are fitted to the sums of `steps`, or where they have
  /// none, to those of `sums`, alone with nothing else going on. Needs buckets in either. Throws
  /// std::invalid_argument where --gradient-type cannot be answered.
  ExchangeModel(const std::vector<MeasuredSize>& steps, const std::vector<MeasuredSize>& sums,
                const ForecastRequest& request, int64_t per_host);

  /// A size that was measured, with its own settings and network. `slows`: whether what its steps
  /// take more is held to be computation beside sums.
  ExchangeParts measured_parts(const MeasuredSize& size, bool slows) const;
  /// One that is asked for, where sums reach this share of a network that was given.
  ExchangeParts asked_parts(int64_t ranks, bool slows, double reached) const;

  /// From which on a step of so many ranks takes at most this beyond computation; the rest of the
  /// network stays. Unknown where no network does.
  Maybe<double> enough_bits_per_second(int64_t ranks, double seconds) const;
  Maybe<double> enough_latency_seconds(int64_t ranks, double seconds) const;

  bool crosses_hosts(int64_t ranks) const { return ranks > asked_.per_host; }
  /// Whether sums between hosts can be told.
  bool knows_network() const { return asked_.between.bytes_per_second > 0; }
  /// How much longer computation takes beside a sum, at most twice.
  double slowing() const { return slowing_; }
  std::vector<std::string> assumptions() const;

 private:
  Maybe<double> enough(int64_t ranks, double seconds, double least, double most,
                       void (*set)(Link& link, double value)) const;

  SimulatedJob measured_, asked_;
  double slowing_ = 0;
  bool ready_by_flops_ = false;
  bool latency_is_known_ = false;
};

}  // namespace nearmetal
