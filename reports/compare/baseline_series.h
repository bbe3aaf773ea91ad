// The runs of baselines: their spread, and what a gate can find with it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reports/compare/run_set.h"
#include "reports/document/maybe.h"
#include "reports/statistics/power.h"

namespace nearmetal {

/// Runs that each side of a gate needs to find a drop.
struct NeededRuns {
  double drop = 0;
  Maybe<int64_t> runs;
};

/// The runs of one arm under one fingerprint.
struct BaselineSeries {
  std::string baseline;
  std::string fingerprint;  // its first digits, as in the names of folders
  std::string arm;
  SampleUnit sample = SampleUnit::image;
  int64_t runs = 0;      // complete
  int64_t left_out = 0;  // not complete
  std::string first;     // start of a run
  std::string last;
  Maybe<double> throughput;  // geometric mean
  Maybe<double> lower;       // of its 95 % interval
  Maybe<double> upper;
  Maybe<double> spread;  // of the runs, relative
  std::vector<NeededRuns> needed_runs;
};

/// The chance with which a drop is found.
inline constexpr double needed_runs_power = 0.95;

/// The series of each fingerprint and arm of a baseline, in order of these.
std::vector<BaselineSeries> series_of(const RunSet& set, const std::string& baseline,
                                      const DecisionRule& rule);

}  // namespace nearmetal
