// The report of rank 0 on a job that is killed before all its ranks have reported.
#pragma once

#include <thread>

#include "bench/cli/output.h"
#include "bench/cli/process.h"
#include "bench/run/prepare_device.h"
#include "bench/run/rank_report.h"
#include "bench/run/rank_run.h"

namespace nearmetal {

/// The variable in which a sweep names, for a job of its own, the file that takes the last report:
/// a launcher that is told to end hands on nothing more of what its ranks print. Ranks on other
/// hosts do not have it.
constexpr const char* last_report_variable = "NEARMETAL_LAST_REPORT";

/// The file of the last report, where this process has it and its folder is there.
Destination last_report_for_sweep();

/// A launcher that is told to end kills its ranks a second later (Open MPI), while a step, or what
/// comes after the window, may take longer. Half a second after `stop` this writes, from a thread
/// of its own, what this rank has measured until then: a partial report without the other ranks.
class LastReport {
 public:
  /// The task must outlive it.
  LastReport(const RankTask& task, Destination destination);

  /// Where the report of all ranks goes, which is there now: in place of what was written here.
  Destination finish();
  /// Leaves that report for the sweep, as the launcher may be gone that would hand it on.
  void finish_for_sweep(const Report& report);

 private:
  void wait_for_stop(const std::stop_token& over);
  void write(const Report& report);

  const RankTask& task_;
  Destination destination_;
  std::jthread thread_;
};

}  // namespace nearmetal
