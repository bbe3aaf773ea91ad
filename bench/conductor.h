// How a rank speaks with the sweep that started its job.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <ostream>
#include <thread>

#include "bench/consensus.h"
#include "bench/trainer.h"
#include "reports/event_json.h"

namespace nearmetal {

/// Of rank 0: tells events on `out`, takes orders from the file `orders`, both from threads of its
/// own, and holds the job back: the timed window opens at the time that it is told, and the load
/// goes on until it is told to end.
class Conductor {
 public:
  Conductor(std::ostream& out, int orders);
  ~Conductor();
  Conductor(const Conductor&) = delete;
  Conductor& operator=(const Conductor&) = delete;

  /// `progress` is told from now on.
  void follow(const TrainerProgress& progress, int64_t images_per_step);
  void unfollow();
  void tell(const Event& event);

  bool may_open_window() const;
  bool may_end() const { return may_end_; }
  bool must_stop() const { return must_stop_; }

 private:
  void listen();
  void obey(const std::string& line);
  void tell_progress();

  std::ostream& out_;
  std::mutex out_mutex_;
  int orders_;
  std::atomic<double> start_unix_seconds_;
  std::atomic<bool> may_end_ = false;
  std::atomic<bool> must_stop_ = false;

  std::mutex mutex_;  // of the following
  const TrainerProgress* progress_ = nullptr;
  int64_t images_per_step_ = 0;
  const char* phase_ = "set-up";  // while there is no progress
  bool over_ = false;
  std::condition_variable over_changed_;
  std::thread listener_, teller_;
};

/// What `inner` agrees on, held back by the conductor.
class ConductedConsensus : public Consensus {
 public:
  ConductedConsensus(Consensus& inner, Conductor& conductor)
      : inner_(inner), conductor_(conductor) {}

  Wish agree(Wish mine) override;
  int64_t agree_steps(int64_t mine) override { return inner_.agree_steps(mine); }

 private:
  Consensus& inner_;
  Conductor& conductor_;
  bool in_window_ = false;
  bool told_ = false;  // that this rank is ready for what comes next
};

}  // namespace nearmetal
