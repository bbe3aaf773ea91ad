// One fresh start of a layout: all its jobs, from their launch to what they measured, in the way in
// which they share what they have.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/errors.h"
#include "comm/launch/launch_plan.h"
#include "comm/layout/layout.h"
#include "reports/document/types.h"

namespace nearmetal {

struct LaunchOutcome {
  std::vector<Report> reports;  // of the jobs; of all where there is no failure
  ExitCode code = ExitCode::ok;
  std::optional<std::string> failure{};  // of the job that failed first
  std::vector<Neighbour> neighbours{};
  std::optional<FailureCode> failure_code{};
};

using Commands = std::vector<std::vector<std::string>>;

/// "warm-up", or the throughput so far, of several jobs that of the slowest and of the fastest.
using ShowProgress = std::function<void(const std::string& text)>;

/// Starts the commands all at once. When every job is warm, their windows open at one time; their
/// load goes on until the last is through its own. Where one fails or takes longer than the limits,
/// or `stop` is not 0, all are ended; a stop lets them finish their step and tell what they have.
/// Where the clocks of their hosts are a second apart, that is a failure. `on_this_machine`: all
/// their ranks are. Nothing of them is left running, and none of their temporary files.
LaunchOutcome run_launch(const Commands& commands, const TimeLimits& limits,
                         const std::atomic<int>& stop, const ShowProgress& show,
                         bool on_this_machine);

/// Tries whether the jobs of each layout that wants that can have multiprocessors of their own; of
/// those that cannot, by layout, why not. `warn` is told of a try that failed otherwise, after
/// which the layout itself shows whether it can be had.
std::map<size_t, std::string> layouts_without_parts(const LaunchPlan& plan,
                                                    const std::atomic<int>& stop,
                                                    const std::function<void(std::string)>& warn);

/// Starts the jobs at once, or one after another where the share is serial; with an MPS daemon of
/// their own around them where it is mps. Fails where the executable that the layout names is no
/// more the one of the plan, and where a job did other work than the plan's.
LaunchOutcome run_layout(const LaunchPlan& plan, size_t layout, const std::atomic<int>& stop,
                         const ShowProgress& show);

/// Whether the jobs of a layout share a GPU, and choose and keep its kernels themselves.
bool chooses_kernels_alone(const LaunchPlan& plan, size_t layout);

/// Lets one job of each workload take a step alone on each share of a GPU that these layouts have,
/// so that its kernels are chosen where no neighbour disturbs the choice. What it measures is
/// dropped. Returns why that failed, by layout: its own start may fail for the same reason, or
/// choose beside others.
std::map<size_t, std::string> choose_plans_of_shares(const LaunchPlan& plan,
                                                     const std::set<size_t>& layouts,
                                                     const std::atomic<int>& stop,
                                                     const ShowProgress& show);

/// Judges reserved multiprocessors by iterations per second of a fixed workload whose run time is
/// inversely proportional to their number: on the whole GPU, alone on a half, and on each half at
/// once. None if the limit holds and both halves run at the same time, else what is wrong.
std::optional<std::string> verdict_of_sms(double whole, double alone,
                                          const std::vector<double>& together);

}  // namespace nearmetal
