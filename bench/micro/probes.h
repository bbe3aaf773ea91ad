// Times probes by Google Benchmark.
#pragma once

#include <atomic>
#include <ostream>
#include <string>
#include <vector>

#include "models/probe.h"

namespace nearmetal {

struct TimingOptions {
  int repetitions = 3;
  double seconds = 0.1;                    // of one repetition, at least
  bool collective = false;                 // every rank runs each probe equally often
  Ceilings ceilings{};                     // 0: no floor is told
  const std::atomic<int>* stop = nullptr;  // once it is not 0, no run begins
};

enum class TimingForm { table, json, none };

/// Prints each result as it comes, and none of a probe that a stop cut short. JSON is that of
/// Google Benchmark, times in microseconds. Returns the messages of what failed. Throws
/// NotSupported where the library is not to be had.
std::vector<std::string> time_probes(const std::vector<Probe>& probes, const TimingOptions& options,
                                     TimingForm form, std::ostream& out);

/// The function that the module with Google Benchmark exports under this name. `columns` limit
/// tables, 0: nothing does; `failures` is what time_probes() returns.
using TimingEntry = void (*)(const std::vector<Probe>& probes, const TimingOptions& options,
                             TimingForm form, std::ostream& out, size_t columns,
                             std::vector<std::string>& failures);
inline constexpr const char* timing_entry_name = "nearmetal_time_probes";

}  // namespace nearmetal
