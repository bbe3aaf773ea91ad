// Where the plans of a run come from, and where new ones are kept.
#pragma once

#include <string>
#include <vector>

#include "reports/document/types.h"

namespace nearmetal {

struct PlanSource {
  std::vector<Plan> known;
  bool pinned = false;            // exactly these
  std::string cache;              // path, empty: none
  std::string context;            // of the cache
  std::vector<Warning> warnings;  // of a cache that cannot be used
};

/// The plans of the first run that has any. Throws InvalidReport, or std::invalid_argument where
/// there is none.
std::vector<Plan> pinned_plans(const std::string& place);

/// --plans REPORT pins those of its first run that has any; else those of the plan cache are taken,
/// and config.plan_cache says which it is. Throws InvalidReport or std::invalid_argument for a
/// report to pin.
PlanSource find_plans(RunConfig& config, const DeviceInfo& device);

/// The place (REPORT or REPORT#ARM) that --plans gets for a job of `config`. Of arms that did the
/// same work it is the one of that name, else the first. Throws InvalidReport, or
/// std::invalid_argument where none did, or where the batch is still to be found.
std::string place_of_plans(const RunConfig& config, const std::string& arm);

/// Keeps plans that are new. A cache that cannot be written is a warning: the next run tunes again,
/// and this one is none the worse.
std::vector<Warning> keep_plans(const PlanSource& source, const std::vector<Plan>& plans);

}  // namespace nearmetal
