// Ends a job whose ranks wait for one that never comes, and says which.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "comm/world.h"

namespace nearmetal {

/// Waits that long, for a thread; true as soon as it is told to end.
bool ends_within(std::chrono::milliseconds period, const std::stop_token& over);

/// How long a rank waits for one that does not join, or does not run.
constexpr double default_patience_seconds = 60;

/// The ranks of a host show one another that they run, and whether they wait for others, in a file
/// that they share in the folder of their launcher. A thread of each looks twice a second, and ends
/// the process with ExitCode::timed_out where this rank has made no call of MPI
///  - for the patience, in which a rank has not joined, or has not run, or
///  - for five times that, as one rank may time kernels while the others wait, or
///  - for 20 s once the job is to stop: then with the exit code of the signal.
/// Does nothing in a job of one process.
class Watchdog {
 public:
  /// `stop` is the signal that stops the job, 0 before. `tell` says why the process ends, on one
  /// rank of each host, on the thread.
  Watchdog(double patience_seconds, const std::atomic<int>& stop,
           std::function<void(const std::string& why)> tell);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// All ranks have joined. `world` may end before this.
  void has_joined(const World& world) { calls_ = world.calls(); }
  /// Why the process ends in a second; null: it does not.
  const std::string* why_it_ends() const { return ends_ ? &why_ : nullptr; }

 private:
  struct Signs;  // of a rank, in the file
  struct Seen {
    int64_t beats = 0;
    int64_t look = 0;  // at which they had changed
  };

  void watch(const std::stop_token& over);
  void show_signs();
  bool is_over() const;
  bool runs(size_t rank, int64_t looks) const;
  std::string why() const;
  [[noreturn]] void end();

  const double patience_seconds_;
  const std::atomic<int>& stop_;
  const std::function<void(const std::string& why)> tell_;
  const size_t rank_;
  std::vector<Seen> seen_;                          // by rank
  std::span<Signs> signs_;                          // by rank; only those of this host show any
  std::atomic<const CallCounts*> calls_ = nullptr;  // null: not joined
  int64_t looks_ = 0;  // so far: a clock that stands still while the process is stopped
  int64_t known_calls_ = 0;
  int64_t last_call_ = 0;   // the look at which one was new,
  int64_t stopped_at_ = 0;  // and the one at which there was a stop; 0: none
  std::string why_;
  std::atomic<bool> ends_ = false;
  std::jthread thread_;
};

}  // namespace nearmetal
