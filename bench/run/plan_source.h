// Where the plans of a run come from, and where new ones are kept.
#pragma once

#include <string>
#include <vector>

#include "reports/document/types.h"

namespace nearmetal {

struct PlanSource {
  std::vector<Plan> known;
  bool pinned = false;  // exactly these
  std::string cache;    // path, empty: none
  std::string context;  // of the cache
};

/// --plans REPORT pins those of its first run that has any; else those of the plan cache are taken,
/// and config.plan_cache says which it is. Throws InvalidReport or std::invalid_argument for a
/// report to pin; a cache that cannot be used is a warning.
PlanSource find_plans(RunConfig& config, const DeviceInfo& device, std::vector<Warning>& warnings);

/// Keeps plans that are new. A cache that cannot be written is a warning: the next run tunes again,
/// and this one is none the worse.
void keep_plans(const PlanSource& source, const std::vector<Plan>& plans,
                std::vector<Warning>& warnings);

}  // namespace nearmetal
