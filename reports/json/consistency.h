// The contradictions within a report.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "reports/document/types.h"

namespace nearmetal {

/// The summary of the step times of a window.
StepTime step_time_of(std::span<const double> seconds);

/// Figures that follow from others: throughput from samples and seconds of the window, these and
/// the summaries of step times from the step times, speedups from the runs of both arms, sums from
/// their parts, rates from what was moved in which time, hashes from what they are of; of earlier
/// versions those that their rules gave; and the exit code agrees with the status. Throws
/// InvalidReport that names the first place where they do not, by more than figures with few digits
/// differ. `has_setting`: of those in the configuration's hash, whether the document has it, as
/// earlier versions had fewer.
void require_consistent(const Report& report,
                        const std::function<bool(const std::string& name)>& has_setting);

/// The same of the runs alone, and that what their ranks refer to is there.
void require_consistent_runs(const Report& report);

}  // namespace nearmetal
