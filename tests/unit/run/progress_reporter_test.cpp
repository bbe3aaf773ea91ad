#include <gtest/gtest.h>

#include <chrono>
#include <ostream>
#include <semaphore>
#include <sstream>
#include <string>

#include "bench/run/sweep_control.h"
#include "reports/json/event_json.h"

namespace nearmetal {
namespace {

// A text that says when there is more of it.
struct Told : std::stringbuf {
  std::counting_semaphore<> flushes{0};
  int sync() override {
    flushes.release();
    return 0;
  }
};

// The last event of a run that ended at step 93 of its warm-up.
Event last_event(bool failed) {
  Told told;
  std::ostream out(&told);
  {
    TrainerProgress progress;
    progress.steps_done = 93;
    ProgressReporter reporter(out, 0);
    auto following = reporter.follow(progress, 4);
    if (failed) reporter.stay();
    following.reset();
    while (told.flushes.try_acquire()) {
    }
    EXPECT_TRUE(told.flushes.try_acquire_for(std::chrono::minutes(1)));
  }
  std::istringstream lines(told.str());
  std::string last;
  for (std::string line; std::getline(lines, line);) last = line;
  return event_from_json(last);
}

TEST(ProgressReporter, GoesOnToTheProof) { EXPECT_EQ(last_event(false).phase, RankPhase::proof); }

TEST(ProgressReporter, StaysWhereARunFailed) {
  const Event event = last_event(true);
  EXPECT_EQ(event.phase, RankPhase::warm_up);
  EXPECT_EQ(event.steps, 93);
}

}  // namespace
}  // namespace nearmetal
