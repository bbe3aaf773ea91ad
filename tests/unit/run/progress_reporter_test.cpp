#include <gtest/gtest.h>

#include <chrono>
#include <sstream>
#include <string>
#include <thread>

#include "bench/run/sweep_control.h"
#include "reports/json/event_json.h"

namespace nearmetal {
namespace {

// The last event of a run that ended at step 93 of its warm-up.
Event last_event(bool failed) {
  std::ostringstream out;
  {
    TrainerProgress progress;
    progress.steps_done = 93;
    ProgressReporter reporter(out, 0);
    auto following = reporter.follow(progress, 4);
    if (failed) reporter.stay();
    following.reset();
    std::this_thread::sleep_for(std::chrono::milliseconds(700));  // it reports twice a second
  }
  std::istringstream lines(out.str());
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
