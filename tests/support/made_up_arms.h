// Arms of 1 and 2 ranks with all that charts and pages show.
#pragma once

#include "tests/support/made_up_runs.h"

namespace nearmetal {

/// Two arms of 1 and 2 ranks whose runs keep their steps and a profile.
inline Report full_report(int first_minute = 0) {
  Report report = made_up_report({{"1x1", {1000, 1010}}, {"1x2", {1900, 1910}}}, first_minute);
  for (Run& run : report.arms[1].runs) {
    run.world_size = 2;
    run.ranks.push_back(run.ranks[0]);
    run.ranks[1].rank = 1;
    run.ranks[1].step_seconds = {0.5, 0.1, 0.2, 0.3};
    run.ranks[1].step_time.value->median_seconds = 0.11;
  }
  return report;
}

inline RunSet set_of_report(const Report& report, bool with_steps = true) {
  RunSet set;
  add_runs(set, report, "made up", with_steps);
  return set;
}

}  // namespace nearmetal
