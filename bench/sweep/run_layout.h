// One fresh start of a layout of a plan, in the way in which its jobs share what they have.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/sweep/sweep_launch.h"
#include "comm/launch/launch_plan.h"

namespace nearmetal {

/// Throws what cannot work, with its place: NotSupported where a layout needs MPS and there can be
/// none, and what require_mig_devices() throws; std::invalid_argument where it needs MPS on another
/// machine.
void require_shares(const LaunchPlan& plan);

/// Throws NotSupported where a layout needs mpirun and it is not on PATH.
void require_mpirun(const LaunchPlan& plan);

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
