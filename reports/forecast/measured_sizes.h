// The sizes of a sweep that a forecast may rest on: arms that did the same work on other numbers of
// ranks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reports/compare/run_set.h"
#include "reports/forecast/growth.h"

namespace nearmetal {

struct MeasuredSize : JobSize {
  std::string arm;
  SomeRuns runs;          // complete ones, at least one
  double throughput = 0;  // samples per second of all ranks

  /// Of a step; where the batch is not told of a sample of each rank.
  double step_seconds() const { return samples() * static_cast<double>(ranks) / throughput; }
};

struct MeasuredSizes {
  std::vector<MeasuredSize> sizes;  // by ranks
  bool same_batch = true;
  double deviation = 0;  // of runs of an arm, relative
};

/// The comparable key of a run without its layout; `any_batch`: nor what follows from its batch.
std::map<std::string, std::string> work_of_run(const SetRun& run, bool any_batch);

/// Throws std::invalid_argument, which says what there is, where less than two numbers of ranks did
/// the same work, with this batch if one is given, or where several works have such sizes. Jobs
/// that share a device, pipelines and ranks that train for themselves are left out.
MeasuredSizes measured_sizes(const RunSet& set, const std::optional<int64_t>& batch);

}  // namespace nearmetal
