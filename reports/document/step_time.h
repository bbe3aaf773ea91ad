// How long the steps of a rank took.
#pragma once

#include <cstdint>

#include "reports/document/maybe.h"

namespace nearmetal {

/// Statistics of the step times in the timed window. Within one run only: says nothing about the
/// next run.
struct StepTime {
  double median_seconds = 0;
  double p95_seconds = 0;
  double p99_seconds = 0;
  double jitter_seconds = 0;              // 1.4826 x median absolute deviation
  Maybe<double> drift;                    // least-squares change over the window / mean
  Maybe<double> autocorrelation;          // of neighbouring steps
  Maybe<double> relative_standard_error;  // of the mean, by batch means
  Maybe<double> effective_steps;          // independent steps worth the same

  bool operator==(const StepTime&) const = default;
};

/// Quantiles of steps taken one at a time, each from its start to its end as the host sees it.
struct Latency {
  int64_t steps = 0;
  double median_seconds = 0;
  double p95_seconds = 0;
  Maybe<double> p99_seconds;

  bool operator==(const Latency&) const = default;
};

}  // namespace nearmetal
