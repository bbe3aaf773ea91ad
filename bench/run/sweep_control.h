// How a rank tells how far it is: on a terminal, to the sweep that started its job, which it obeys,
// and in a last report where the job is killed.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <stop_token>
#include <string>
#include <thread>

#include "bench/cli/output.h"
#include "bench/run/together.h"
#include "bench/run/trainer.h"
#include "models/sample_unit.h"
#include "reports/json/event_json.h"

namespace nearmetal {

struct RankTask;

/// "step 120 of 623, 7950 images/s, 16 s left", or how far warm-up is.
std::string progress_text(const TrainerProgress& progress, int64_t samples_per_step,
                          SampleUnit unit);

/// Rewrites the line four times a second from a thread of its own, so that the loop never prints;
/// clears it when the thread is ended. The arguments must outlive it.
std::jthread show_progress(const Terminal& terminal, const TrainerProgress& progress,
                           int64_t samples_per_step, SampleUnit unit);

/// Tells of the progress of a rank twice a second, from a thread of its own. Where all ranks do,
/// the one that stands still is known by its silence.
class ProgressReporter {
 public:
  /// `stage`: empty, or what stage_text() calls that of the rank.
  ProgressReporter(std::ostream& out, int rank, const std::string& stage = "");

  struct StopFollowing {
    void operator()(ProgressReporter* reporter) const;
  };
  using Following = std::unique_ptr<ProgressReporter, StopFollowing>;

  /// Reports `progress`, which must outlive what is returned, until that ends.
  [[nodiscard]] Following follow(const TrainerProgress& progress, int64_t samples_per_step,
                                 SampleUnit unit = SampleUnit::image);
  /// From now on reports the progress of this moment: the run failed there.
  void stay();
  void report(Event event);

 private:
  void report_progress(const std::stop_token& over);

  std::ostream& out_;
  const int rank_;
  const std::string host_;
  const std::optional<std::string> stage_;
  std::mutex out_mutex_;

  std::mutex mutex_;  // guards what follows
  const TrainerProgress* progress_ = nullptr;
  int64_t samples_per_step_ = 0;
  SampleUnit unit_ = SampleUnit::image;
  RankPhase phase_ = RankPhase::set_up;  // while there is no progress
  std::optional<Event> last_;            // set where the run failed
  std::jthread thread_;
};

constexpr int poll_milliseconds = 50;  // between two looks at orders or answers

/// The time by the clock of the system, in which the start of a window is ordered.
double unix_seconds();

/// For rank 0: takes orders from the file `orders`, in a thread of its own, and holds the job back:
/// the timed window opens at the time that it is told, and the load goes on until it is told to
/// end.
class SweepControl {
 public:
  SweepControl(ProgressReporter& reporter, int orders);

  ProgressReporter& reporter() { return reporter_; }
  bool may_open_window() const;
  bool may_end() const { return may_end_; }
  bool must_stop() const { return must_stop_; }

 private:
  void listen(const std::stop_token& over);
  void obey(const std::string& line);

  ProgressReporter& reporter_;
  int orders_;
  std::atomic<double> start_unix_seconds_;
  std::atomic<bool> may_end_ = false;
  std::atomic<bool> must_stop_ = false;
  std::jthread listener_;
};

/// The consensus of `inner`, held back by `control`; both must outlive it.
std::unique_ptr<Consensus> make_controlled(Consensus& inner, SweepControl& control);

/// The file of the last report, where this process has it and its folder is there.
Destination last_report_file();

/// A launcher that is told to end kills its ranks a second later (Open MPI), while a step, or what
/// comes after the window, may take longer. After `stop` this writes, from a thread of its own,
/// what this rank has measured until then: a partial report without the other ranks. The same,
/// failed, where the watchdog ends the job.
class LastReport {
 public:
  /// The task must outlive it. `patience`: with the report of all ranks, after `stop`.
  LastReport(const RankTask& task, Destination destination, std::chrono::milliseconds patience);

  /// Where the report of all ranks goes, which is there now: in place of what was written here.
  Destination finish();
  /// Leaves that report in the file, as the launcher may be gone that would hand it on.
  void finish(const Report& report);

 private:
  void wait_for_stop(const std::stop_token& over);
  void write(const Report& report);

  const RankTask& task_;
  Destination destination_;
  const std::chrono::milliseconds patience_;
  std::jthread thread_;
};

}  // namespace nearmetal
