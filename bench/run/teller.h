// A rank's word on how far it is, for the sweep that started its job.
#pragma once

#include <condition_variable>
#include <mutex>
#include <ostream>
#include <string>
#include <thread>

#include "bench/run/trainer.h"
#include "reports/json/event_json.h"

namespace nearmetal {

/// Tells of the progress of a rank twice a second, from a thread of its own. Where all ranks do,
/// the one that stands still is known by its silence.
class Teller {
 public:
  Teller(std::ostream& out, int rank);
  ~Teller();
  Teller(const Teller&) = delete;
  Teller& operator=(const Teller&) = delete;

  /// `progress` is told from now on.
  void follow(const TrainerProgress& progress, int64_t samples_per_step,
              SampleUnit unit = SampleUnit::image);
  void unfollow();
  void tell(Event event);

 private:
  void tell_progress();

  std::ostream& out_;
  const int rank_;
  const std::string host_;
  std::mutex out_mutex_;

  std::mutex mutex_;  // of the following
  const TrainerProgress* progress_ = nullptr;
  int64_t samples_per_step_ = 0;
  SampleUnit unit_ = SampleUnit::image;
  RankPhase phase_ = RankPhase::set_up;  // while there is no progress
  bool over_ = false;
  std::condition_variable over_changed_;
  std::thread thread_;
};

}  // namespace nearmetal
