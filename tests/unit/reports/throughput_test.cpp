#include <gtest/gtest.h>

#include <utility>

#include "reports/document/metric.h"
#include "tests/support/sample_report.h"

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

TEST(Throughput, ARunTakesSetUpWarmUpAndWindow) {
  auto run = sample_run();
  const double set_up = run.ranks[0].set_up->total_seconds;
  EXPECT_NEAR(*run_seconds(run), set_up + 2 * .2 + .4, 1e-12)
      << "2 of the warm-up, 2 of the window";
  run.window = Unknown{"no window"};
  EXPECT_EQ(run_seconds(run).reason, "no window");
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

TEST(Throughput, OfEachGpuCountsAGpuOnceHoweverManyRanksItHas) {
  const Metric& metric = metric_from("throughput_images_per_second_per_gpu");
  nearmetal::Run run = run_on_known_peak();
  set_throughput(600.0, run);
  EXPECT_FALSE(metric.value_of(run)) << "no rank";
  for (const auto& [environment, gpu] : {std::pair(0, 0), {0, 1}, {0, 1}, {1, 0}}) {
    run.ranks.emplace_back();
    run.ranks.back().environment = environment;
    run.ranks.back().gpu = gpu;
  }
  EXPECT_EQ(*metric.value_of(run), 200);
  run.device_name = "NVIDIA H200 MIG 1g.18gb";
  EXPECT_FALSE(metric.value_of(run)) << "of parts of a GPU";
  run.device_name = "NVIDIA H200";
  run.ranks.back().gpu.reset();
  EXPECT_EQ(metric.value_of(run).reason, "it ran on CPUs");
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
