// Arms whose jobs share a GPU, for tests of what compares them.
#pragma once

#include <string>
#include <vector>

#include "reports/sharing/fractions.h"
#include "tests/support/sample_report.h"

namespace nearmetal {

/// Runs of these speeds; of several jobs that have even parts of it, or in turn all of it.
inline Arm shared_arm(const std::string& name, const ArmShare& share,
                      const std::vector<double>& speeds) {
  Arm arm;
  arm.name = name;
  arm.share = share;
  for (const double speed : speeds) {
    Run& run = arm.runs.emplace_back(sample_run());
    run.throughput = speed;
    run.window.value->steps = 100;
    run.world_size = share.jobs;
    run.ranks[0].monitoring->series = {{"power_watts", 400, 500, 600, {}},
                                       {"memory_used_bytes", 1e9, 2e9, 3e9, {}}};
    run.ranks[0].step_time.value->p99_seconds = 0.01 * static_cast<double>(share.jobs);
    if (share.jobs == 1) continue;
    const double of_job =
        share.mode == SharingMode::serial ? speed : speed / static_cast<double>(share.jobs);
    run.jobs.assign(share.jobs, {1, of_job, 0});
    run.jain_fairness = 1;
  }
  return arm;
}

inline Report four_jobs() {
  Report report = sample_report();
  report.arms = {shared_arm("alone", {SharingMode::alone, 1, {}, {}}, {1000, 1010}),
                 shared_arm("serial", {SharingMode::serial, 4, {}, {}}, {990, 1000}),
                 shared_arm("slices", {SharingMode::timeslice, 4, {}, {}}, {900, 910}),
                 shared_arm("mps", {SharingMode::mps, 4, {25, 25, 25, 25}, {}}, {1100, 1122}),
                 shared_arm("mps alone", {SharingMode::mps, 1, {25}, {}}, {400, 404})};
  return report;
}

inline std::vector<FractionPoint> points_of(const Report& report) {
  RunSet set;
  add_runs(set, report, "made up");
  return fractions_of(set);
}

}  // namespace nearmetal
