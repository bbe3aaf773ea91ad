// Times probes by Google Benchmark.
#pragma once

#include <ostream>
#include <vector>

#include "models/probe.h"

namespace nearmetal {

struct TimingOptions {
  int repetitions = 3;
  double seconds = 0.1;     // of one repetition, at least
  bool collective = false;  // every rank runs each probe equally often
  Ceilings ceilings{};      // 0: no floor is told
};

enum class TimingForm { table, json, none };

/// Prints each result as it comes. JSON is that of Google Benchmark, times in microseconds.
/// Returns the messages of what failed.
std::vector<std::string> time_probes(const std::vector<Probe>& probes, const TimingOptions& options,
                                     TimingForm form, std::ostream& out);

}  // namespace nearmetal
