// A job that a sweep starts: its temporary files, a process with pipes, and why it failed.
#pragma once

#include <sys/types.h>
#include <sys/wait.h>

#include <csignal>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/environment/child_process.h"
#include "reports/json/event_json.h"

namespace nearmetal {

/// A folder of the job's own, so that jobs at once do not meet in the session folder that Open MPI
/// gives all jobs of a user; what a job that was killed leaves is gone with it. It goes with this
/// object, or soon after; where this process is killed, once the job is gone as well.
class JobFolder {
 public:
  /// `shares_memory`: all ranks are on this machine, so that what they share lies in a folder of
  /// the job's own as well. Throws std::runtime_error.
  explicit JobFolder(bool shares_memory);
  ~JobFolder();
  JobFolder(const JobFolder&) = delete;
  JobFolder& operator=(const JobFolder&) = delete;

  /// NAME=VALUE of what the job's launcher must find in its environment.
  std::vector<std::string> variables() const;
  /// The file that takes the last report of the job's rank 0, as one of the variables says.
  std::filesystem::path last_report() const { return folder_ / "last_report.json"; }
  /// File descriptor that the launcher inherits.
  int lifeline() const { return keeper_.lifeline(); }

 private:
  std::filesystem::path folder_;
  std::filesystem::path shared_memory_;  // empty: none
  Keeper keeper_;
};

/// The last progress that a rank told of.
struct Heartbeat {
  Event progress;
  double heard_at = 0, stepped_at = 0;  // by steady_seconds()
  // The lag of its clock behind this machine's, plus the shortest time to get here.
  std::optional<double> clock_lag_seconds{};
};

/// Ends with the process that started it, with its children in a session of its own.
class JobProcess {
 public:
  /// Starts it in a folder of its own where one is given, which must outlive it. Throws
  /// std::system_error where the program cannot be started.
  explicit JobProcess(const std::vector<std::string>& command, const JobFolder* folder = nullptr);
  ~JobProcess();  // kills what is left
  JobProcess(const JobProcess&) = delete;
  JobProcess& operator=(const JobProcess&) = delete;

  /// Reads what has arrived and looks whether the process has ended. Never waits.
  void update();
  void order(const std::string& line);
  /// Asks it to end; kills it if it has not after some seconds of further calls.
  void end();

  bool ended() const { return status_.has_value(); }
  /// 0, or why it did not end well: "exit code 6", "signal 9".
  std::string ending() const {
    if (WIFSIGNALED(*status_)) return "signal " + std::to_string(WTERMSIG(*status_));
    return "exit code " + std::to_string(WEXITSTATUS(*status_));
  }
  int exit_code() const {
    return WIFSIGNALED(*status_) ? 128 + WTERMSIG(*status_) : WEXITSTATUS(*status_);
  }
  /// Whether a signal ended it, other than that of a program that says why it gives up.
  bool was_killed() const { return WIFSIGNALED(*status_) && WTERMSIG(*status_) != SIGABRT; }

  bool ready() const { return ready_; }
  bool measured() const { return measured_; }
  Event progress(int64_t rank = 0) const {
    const auto known = heartbeats_.find(rank);
    return known == heartbeats_.end() ? Event{} : known->second.progress;
  }
  /// The last heartbeat of each rank, by rank.
  const std::map<int64_t, Heartbeat>& heartbeats() const { return heartbeats_; }
  /// The longest time without a step, over the ranks that have begun to take steps.
  double seconds_without_step() const;
  /// How long the most silent rank had been silent when another rank last spoke.
  double seconds_of_silence() const;
  /// The report as rank 0 sent it, or left it in the job's folder where it could send it no more;
  /// then perhaps of rank 0 alone, and not complete.
  const std::optional<Report>& report() const { return report_ ? report_ : last_report_; }
  const std::optional<Neighbour>& neighbour() const { return neighbour_; }
  bool has_result() const { return report_ || neighbour_; }
  /// The failure that a rank sent, if any; of several the first.
  const std::optional<Event>& failure() const { return failure_; }
  /// The last lines of its standard error.
  const std::deque<std::string>& errors() const { return errors_; }
  int out() const { return out_.number(); }
  int err() const { return err_.number(); }

 private:
  void take_out(const std::string& line);
  void take_err(const std::string& line);
  void take_event(Event event);
  void take_word_of_a_rank(Event event);
  void take_progress(Event event);
  void take_last_report();

  pid_t pid_ = -1;
  Descriptor in_, out_, err_;
  std::string out_text_, err_text_;  // lines not yet complete
  std::optional<int> status_;        // of waitpid()
  std::optional<double> end_asked_;
  bool ready_ = false, measured_ = false;
  std::map<int64_t, Heartbeat> heartbeats_;
  std::optional<Report> report_, last_report_;
  std::optional<Neighbour> neighbour_;
  std::optional<Event> failure_;
  std::deque<std::string> errors_;
  std::filesystem::path last_report_file_;  // empty: none
};

/// Why a job ended without a complete report: because a process was killed, as its launcher says;
/// else the failure that a rank sent, with its code and exit code; else what rank 0 says in a
/// report that is not complete. Standard error is searched only for the words of launchers and of
/// processes that died before they sent anything. The text ends with the ending, and phase and step
/// of the rank.
Failure failure_of_job(const JobProcess& job);

/// How far a job came that takes too long: ": rank 1 (host) is silent (window, step 20)" where a
/// rank does not speak while others do; else phase and step of rank 0 alone.
std::string place_of_standstill(const JobProcess& job);

}  // namespace nearmetal
