// The throughput of a run and what follows from it.
#pragma once

#include <string>

#include "reports/document/types.h"

namespace nearmetal {

/// Samples per second. The samples of a window that several jobs share need not be whole.
double throughput_of(double samples, double seconds);
double throughput_of(const TimedWindow& window);

/// Sets the throughput in samples per second, and from it, run.flops_per_sample and
/// run.peak_flops_per_second the flop rate and the share of the peak. All three become unknown with
/// the reason of the throughput; the share alone with that of the peak.
void set_throughput(const Maybe<double>& throughput, Run& run);

/// Marks the run as failed. It loses its throughput, which would be a figure without proof.
void fail_run(const std::string& why, Run& run);

}  // namespace nearmetal
