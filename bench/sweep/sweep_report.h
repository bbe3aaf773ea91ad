// The report of a sweep: an arm for each layout, a run for each of its starts.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "bench/sweep/run_layout.h"
#include "comm/launch/launch_plan.h"
#include "reports/json/journal_json.h"
#include "reports/sharing/cost.h"

namespace nearmetal {

/// The outcome of a launch, as a report of one arm with one run, for the journal. Where a job
/// failed, the run has failed and has no throughput; where a combination of a grid cannot run, the
/// arm says why. `stop`: the signal that ended it early; 0: none.
Report report_of_launch(const LaunchPlan& plan, size_t layout, const LaunchOutcome& outcome,
                        int stop = 0);

/// All runs by layout, in the order of their repeats. Layouts without a run have none; of those
/// that cannot be had here `unsupported` says why, or the entry of a combination that cannot run.
Report report_of_sweep(const LaunchPlan& plan, const std::map<size_t, std::string>& unsupported,
                       const std::vector<JournalEntry>& entries, Report report);

/// "throughput 9012 images/s", or why there is none.
std::string result_text(const Run& run);

/// Prints what was measured, the answer, and a row for each layout: throughput with its interval
/// over runs, speedup and efficiency where the layouts allow for them; then what the runs warned
/// of, and time and cost where they are asked for.
void print_sweep(std::ostream& out, const Report& report, bool colour = false,
                 const CostRequest& costs = {});

}  // namespace nearmetal
