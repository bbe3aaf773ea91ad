// One fresh start of a layout: all its jobs, from their launch to what they measured.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/errors.h"
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

/// "warm-up", or the throughput so far, of several jobs that of the slowest and of the fastest.
using ShowProgress = std::function<void(const std::string& text)>;

/// Starts the commands all at once. When every job is warm, their windows open at one time; their
/// load goes on until the last is through its own. Where one fails or takes longer than the limits,
/// or `stop` is not 0, all are ended; a stop lets them finish their step and tell what they have.
/// Where the clocks of their hosts are a second apart, that is a failure. `on_this_machine`: all
/// their ranks are. Nothing of them is left running, and none of their temporary files.
LaunchOutcome run_launch(const std::vector<std::vector<std::string>>& commands,
                         const TimeLimits& limits, const std::atomic<int>& stop,
                         const ShowProgress& show, bool on_this_machine);

}  // namespace nearmetal
