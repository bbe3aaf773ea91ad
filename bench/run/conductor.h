// How a job obeys the sweep that started it.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "bench/run/consensus.h"
#include "bench/run/teller.h"

namespace nearmetal {

constexpr int poll_milliseconds = 50;  // between two looks at orders or answers

/// By the clock of the system, in which the start of a window is ordered.
double unix_seconds();

/// Of rank 0: takes orders from the file `orders`, in a thread of its own, and holds the job back:
/// the timed window opens at the time that it is told, and the load goes on until it is told to
/// end.
class Conductor {
 public:
  Conductor(Teller& teller, int orders);
  ~Conductor();
  Conductor(const Conductor&) = delete;
  Conductor& operator=(const Conductor&) = delete;

  Teller& teller() { return teller_; }
  bool may_open_window() const;
  bool may_end() const { return may_end_; }
  bool must_stop() const { return must_stop_; }

 private:
  void listen();
  void obey(const std::string& line);

  Teller& teller_;
  int orders_;
  std::atomic<double> start_unix_seconds_;
  std::atomic<bool> may_end_ = false;
  std::atomic<bool> must_stop_ = false;
  std::atomic<bool> over_ = false;
  std::thread listener_;
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
