// What rank 0 tells of a job that is killed before all its ranks have told what they measured.
#pragma once

#include <atomic>
#include <thread>

#include "bench/cli/destination.h"
#include "bench/cli/process_clock.h"
#include "bench/cli/terminal.h"
#include "bench/run/prepare_device.h"
#include "bench/run/rank_report.h"
#include "bench/run/rank_run.h"

namespace nearmetal {

struct LastReportTask {
  const RunRequest& request;
  const PreparedDevice& device;
  const RankStart& start;
  const RunSoFar& so_far;
  const ProcessClock& clock;
  const std::atomic<int>& stop;
  const Terminal& terminal;
};

/// A launcher that is told to end kills its ranks a second later (Open MPI), while a step, or what
/// comes after the window, may take longer. Half a second after `stop` this writes, from a thread
/// of its own, what this rank has measured until then: a partial report without the other ranks.
class LastReport {
 public:
  /// What the task refers to must outlive it.
  LastReport(const LastReportTask& task, Destination destination);

  /// Where the report of all ranks goes, which is there now: in place of what was written here.
  Destination finish();

 private:
  void wait_for_stop(const LastReportTask& task, const std::stop_token& over);
  void write(const LastReportTask& task);

  Destination destination_;
  std::jthread thread_;
};

}  // namespace nearmetal
