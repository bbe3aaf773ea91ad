#include <gtest/gtest.h>

#include "reports/document/metric.h"

namespace nearmetal {
namespace {

// 300 operations a sample, on a device of 10,000 a second.
Run run_on_known_peak() {
  Run run;
  run.flops_per_sample = 300;
  run.peak_flops_per_second = 10'000.0;
  return run;
}

TEST(Throughput, IsTheSamplesOfTheWindowOverItsSeconds) {
  EXPECT_EQ(throughput_of({.first_step = 5, .steps = 4, .samples = 40, .seconds = 2}), 20);
}

TEST(Throughput, GivesTheFlopRateAndTheShareOfThePeak) {
  nearmetal::Run run = run_on_known_peak();
  set_throughput(20.0, run);
  EXPECT_EQ(*run.throughput, 20);
  EXPECT_EQ(*run.flops_per_second, 6'000);
  EXPECT_EQ(*run.share_of_peak, 0.6);
}

TEST(Throughput, HasNoShareOfAnUnknownPeak) {
  nearmetal::Run run = run_on_known_peak();
  run.peak_flops_per_second = Unknown{"no data sheet"};
  set_throughput(20.0, run);
  EXPECT_EQ(*run.flops_per_second, 6'000);
  EXPECT_FALSE(run.share_of_peak);
  EXPECT_EQ(run.share_of_peak.reason, "no data sheet");
}

TEST(Throughput, WhereUnknownLeavesWhatFollowsUnknownForTheSameReason) {
  nearmetal::Run run = run_on_known_peak();
  set_throughput(20.0, run);
  set_throughput(Unknown{"no common time"}, run);
  for (const auto& figure : {run.throughput, run.flops_per_second, run.share_of_peak}) {
    EXPECT_FALSE(figure);
    EXPECT_EQ(figure.reason, "no common time");
  }
  EXPECT_EQ(*run.peak_flops_per_second, 10'000);
}

TEST(Throughput, OfAFailedRunIsUnknown) {
  nearmetal::Run run = run_on_known_peak();
  set_throughput(20.0, run);
  fail_run("out of memory", run);
  EXPECT_EQ(run.status, Status::failed);
  EXPECT_EQ(run.failure, "out of memory");
  EXPECT_EQ(run.throughput.reason, "the run failed");
  EXPECT_EQ(run.share_of_peak.reason, "the run failed");
}

}  // namespace
}  // namespace nearmetal
