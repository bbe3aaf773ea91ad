// Ends a job whose ranks wait for one that never comes, and says which.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "comm/world.h"

namespace nearmetal {

/// How long a rank waits for one that has not joined, does not run, or stands still.
constexpr double default_patience_seconds = 60;

/// The ranks of a host show one another that they run, and whether they wait for others, in a file
/// that they share in the folder of their launcher. A thread of each looks twice a second, and ends
/// the process with ExitCode::timed_out where for as long as the patience
///  - a rank has not joined, or does not run, or
///  - nothing happens here between the first step and the last, nor for ten times the longest step.
/// Outside those steps, where one rank may time kernels while others wait, nothing may happen for
/// five times the patience; once the job is to stop, for 20 s at most, and the exit code is that of
/// the signal. Does nothing in a process without a launcher.
class Watchdog {
 public:
  using Tell = std::function<void(const std::string& why)>;

  /// `stop` is the signal that stops the job, 0 before. `tell` is called on one rank of each host,
  /// on the thread, before the process ends.
  Watchdog(double patience_seconds, const std::atomic<int>& stop, Tell tell);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// All ranks have joined. `world` may end before this.
  void has_joined(const World& world) { calls_ = world.calls(); }
  /// Steps are counted here, which must outlive this; null: none are taken any more.
  void follow(const std::atomic<int64_t>* steps) { steps_ = steps; }
  /// What this rank does, on the thread, before the process ends; an empty function is nothing.
  void before_the_end(Tell save);

 private:
  struct Signs;  // of a rank, in the file
  struct Seen {
    int64_t beats = 0;
    int64_t look = 0;  // at which they had changed
  };

  void watch(const std::stop_token& over);
  void show_signs();
  std::string why_to_end();
  std::string who_has_not_joined() const;
  std::string who_stands_still() const;
  [[noreturn]] void end(const std::string& why);
  bool is_there(int64_t rank) const;
  bool runs(int64_t rank, int64_t looks) const;
  std::vector<int64_t> ranks_where(const std::function<bool(int64_t rank)>& holds) const;
  std::string text_of(const std::vector<int64_t>& ranks) const;

  const double patience_seconds_;
  const std::atomic<int>& stop_;
  const Tell tell_;
  const int64_t rank_;
  std::span<Signs> signs_;  // by rank; only those of this host show any
  std::vector<Seen> seen_;
  std::atomic<const CallCounts*> calls_ = nullptr;  // null: not joined
  std::atomic<const std::atomic<int64_t>*> steps_ = nullptr;
  int64_t looks_ = 0;        // so far: a clock that stands still while the process is stopped
  int64_t activity_ = 0;     // calls and steps so far
  int64_t last_change_ = 0;  // the look at which they had changed,
  int64_t longest_ = 0;      // and the most looks without a change between steps
  int64_t stopped_at_ = 0;   // the look at which there was a stop; 0: none
  std::mutex save_mutex_;
  Tell save_;
  std::jthread thread_;
};

}  // namespace nearmetal
