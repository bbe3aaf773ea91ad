#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "bench/run/sweep_control.h"

namespace nearmetal {
namespace {

TEST(ProgressLineTest, ShowsStepRateAndTimeLeft) {
  TrainerProgress progress;
  progress.steps_done = 7;
  EXPECT_EQ(progress_text(progress, 256, SampleUnit::image), "warm-up: step 7");
  progress.window_first_step = 20;
  progress.window_steps = 100;
  progress.steps_done = 20;
  EXPECT_EQ(progress_text(progress, 256, SampleUnit::image), "step 0 of 100");
  progress.window_measured = 25;
  progress.window_seconds = 0.8;
  EXPECT_EQ(progress_text(progress, 256, SampleUnit::image),
            "step 25 of 100, 8000 images/s, 2 s left");
  EXPECT_EQ(progress_text(progress, 256, SampleUnit::sequence),
            "step 25 of 100, 8000 sequences/s, 2 s left");
}

TEST(ProgressLineTest, ClearsItsLineAtTheEnd) {
  TrainerProgress progress;
  std::ostringstream err;
  const Terminal terminal{.out = err, .err = err, .rewrites = true};
  { const std::jthread line = show_progress(terminal, progress, 1, SampleUnit::image); }
  EXPECT_THAT(err.str(), testing::EndsWith("\r\033[K"));
}

}  // namespace
}  // namespace nearmetal
