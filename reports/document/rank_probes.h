// The findings of a run with --attribute beside its steps: what they ask of the machine, and what
// the machine gives.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reports/document/maybe.h"
#include "reports/document/run_config.h"

namespace nearmetal {

/// A probe (models/probe.h), timed right after the window. Rates follow: bytes / median_seconds.
struct ProbeTime {
  std::string name;  // "copy/device"
  std::string work;  // what one run does
  double bytes = 0;  // moved by one run
  double flops = 0;  // done by one run
  int64_t runs = 0;  // timed ones
  Maybe<double> median_seconds;
  Maybe<double> mean_seconds;
  Maybe<double> p99_seconds;

  bool operator==(const ProbeTime&) const = default;
};

/// The needs of one step on one rank's machine.
struct StepNeeds {
  int64_t kernels = 0;     // or primitives
  double input_bytes = 0;  // copied from the host; 0: images stay on the device
  bool input_pageable = false;
  LaunchMode launch = LaunchMode::graph;
  // Floors of the kernels at the rates of this rank's probes, summed over those that their bytes
  // bind (copy/device) and those that their operations bind (product/PRECISION).
  Maybe<double> memory_seconds;
  Maybe<double> compute_seconds;

  bool operator==(const StepNeeds&) const = default;
};

struct RankProbes {
  StepNeeds needs;
  std::vector<ProbeTime> probes;

  bool operator==(const RankProbes&) const = default;
};

/// Names of probes that are timed for every kind of device.
inline constexpr const char* quantum_probe = "cpu/quantum";
inline constexpr const char* memory_probe = "copy/device";
/// The host queues one step of the program and waits for nothing; not where the CPU computes.
inline constexpr const char* queue_probe = "launch/step";
inline constexpr const char* input_probe = "copy/h2d_pinned";
inline constexpr const char* pageable_probe = "copy/h2d_pageable";

}  // namespace nearmetal
