#include "reports/document/steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/errors.h"
#include "reports/document/metric.h"
#include "reports/json/consistency.h"
#include "reports/json/json.h"
#include "reports/statistics/statistics.h"
#include "tests/support/made_up_runs.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t warm_up = 777;

// Of a rank whose steps differ without order, and two stand out.
Report report_of(int64_t steps) {
  Report report = sample_report();
  report.invocation.config.batch = 10;
  report.invocation.config_sha256 = config_sha256(report.invocation.config);
  Run& run = report.arms[0].runs[0];
  run.profile.reset();
  Rank& rank = run.ranks[0];
  rank.step_seconds.clear();
  rank.loss.clear();
  for (int64_t i = 0; i < steps; ++i) {
    rank.step_seconds.push_back(1e-3 + 1e-6 * static_cast<double>(i * 7919 % 101));
    rank.loss.push_back(7 - 1e-6 * static_cast<double>(i));
  }
  rank.step_seconds[warm_up + 5000] = 0.5;
  rank.step_seconds.back() = 1e-4;
  rank.window_first_step = warm_up;
  rank.window_start_unix_seconds = 1e9;
  rank.monitoring.reset();
  const auto window = std::span<const double>(rank.step_seconds).subspan(warm_up);
  rank.step_time = step_time_of(window);
  run.window = TimedWindow{.first_step = warm_up,
                           .steps = std::ssize(window),
                           .samples = 10 * std::ssize(window),
                           .seconds = std::accumulate(window.begin(), window.end(), 0.0)};
  set_throughput(throughput_of(*run.window), run);
  return report;
}

Rank& rank_of(Report& report) { return report.arms[0].runs[0].ranks[0]; }

TEST(Steps, UpToAHundredThousandOfARankEachIsInTheReport) {
  Report report = report_of(100'000);
  report = consistent_report_from_json(to_json(report));
  EXPECT_EQ(rank_of(report).step_seconds.size(), 100'000);
  EXPECT_EQ(rank_of(report).loss.size(), 100'000);
  EXPECT_THAT(rank_of(report).step_seconds_bins, IsEmpty());
}

TEST(Steps, OfMoreThereAreBinsThatHoldTheSameSums) {
  Report listed = report_of(100'001);
  Report binned = consistent_report_from_json(to_json(listed));
  const Rank& rank = rank_of(binned);
  EXPECT_THAT(rank.step_seconds, IsEmpty());
  EXPECT_THAT(rank.loss, IsEmpty());
  EXPECT_EQ(steps_taken(rank), 100'001);
  EXPECT_EQ(rank.step_time, rank_of(listed).step_time) << "of all steps";
  EXPECT_LE(rank.step_seconds_bins.size(), 1001);
  EXPECT_EQ(rank.loss_bins.size(), rank.step_seconds_bins.size());
  EXPECT_DOUBLE_EQ(rank.loss_bins.front().largest, 7);
  const std::span<const Bin> window = window_bins(binned.arms[0].runs[0], 0);
  int64_t steps = 0;
  double seconds = 0, longest = 0;
  for (const Bin& bin : window) {
    steps += bin.count;
    seconds += bin.sum;
    longest = std::max(longest, bin.largest);
  }
  EXPECT_EQ(steps, 100'001 - warm_up) << "no bin reaches into the window";
  EXPECT_NEAR(seconds, binned.arms[0].runs[0].window->seconds, 1e-9);
  EXPECT_EQ(longest, 0.5);
  EXPECT_EQ(window.back().least, 1e-4);
}

TEST(Steps, AReportWhoseTextsAreChangedStaysOneThatCanBeRead) {
  Report report = report_of(100'001);
  change_free_texts(report, [](const std::string& text) { return text; });
  EXPECT_THAT(rank_of(report).step_seconds, IsEmpty());
  EXPECT_EQ(steps_taken(rank_of(report)), 100'001);
}

TEST(Steps, AQuantileLiesWithinWhatBinsAllow) {
  Report listed = report_of(200'000);
  const auto steps = std::span<const double>(rank_of(listed).step_seconds).subspan(warm_up);
  Report binned = report_from_json(to_json(listed));
  const auto bins = window_bins(binned.arms[0].runs[0], 0);
  for (const double share : {0.0, 0.01, 0.5, 0.95, 0.99, 1.0}) {
    const auto [least, largest] = quantile_range(bins, share);
    EXPECT_LE(least, quantile(steps, share)) << share;
    EXPECT_GE(largest, quantile(steps, share)) << share;
  }
  EXPECT_EQ(quantile_range(bins, 0).first, 1e-4);
  EXPECT_EQ(quantile_range(bins, 1).second, 0.5);
}

TEST(Steps, BinsThatContradictTheSummariesAreRefused) {
  const Report report = report_from_json(to_json(report_of(150'000)));
  const auto refusal_of = [&](auto change) {
    Report changed = report;
    change(changed.arms[0].runs[0]);
    try {
      consistent_report_from_json(to_json(changed));
    } catch (const InvalidReport& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal_of([](auto&) {}), "");
  EXPECT_THAT(refusal_of([](auto& run) { run.ranks[0].step_seconds_bins.back().sum *= 2; }),
              HasSubstr("/step_seconds_bins/1000/sum is"));
  EXPECT_THAT(refusal_of([](auto& run) { run.ranks[0].loss_bins[3].least = 8; }),
              HasSubstr("/loss_bins/3/sum is"));
  EXPECT_THAT(refusal_of([](auto& run) { run.ranks[0].step_time.value->median_seconds = 2e-3; }),
              HasSubstr("/median_seconds is 0.002"));
  EXPECT_THAT(refusal_of([](auto& run) { run.ranks[0].step_time.value->p99_seconds = 0.9e-3; }),
              HasSubstr("/p99_seconds is 0.0009"));
  EXPECT_THAT(refusal_of([](auto& run) { run.window.value->seconds *= 1.01; }),
              HasSubstr("/window/seconds is"));
  EXPECT_THAT(refusal_of([](auto& run) { run.window.value->seconds *= 1 + 1e-7; }),
              HasSubstr("the bins of the slowest rank add up to"));
  EXPECT_THAT(refusal_of([](auto& run) { ++run.ranks[0].step_seconds_bins.back().count; }),
              HasSubstr("the window's bins of rank 0 hold 149224"));
  EXPECT_THAT(refusal_of([](auto& run) { run.ranks[0].step_seconds_bins.pop_back(); }),
              HasSubstr("/window/steps is"));
}

TEST(Steps, AReportOfManyLongRunsStaysOneThatCanBeRead) {
  Report report = report_of(90'000);
  Arm& arm = report.arms[0];
  for (int i = 0; i < 2; ++i) arm.runs[0].ranks.push_back(arm.runs[0].ranks[0]);
  arm.runs.push_back(arm.runs[0]);
  bin_long_lists(report, 10);  // of 5.4 million steps, if ten like it are merged
  for (const Rank& rank : arm.runs[1].ranks) {
    EXPECT_THAT(rank.step_seconds, IsEmpty());
    EXPECT_EQ(steps_taken(rank), 90'000);
  }
  const int64_t bins = std::ssize(rank_of(report).step_seconds_bins);
  bin_long_lists(report, 10);
  EXPECT_EQ(std::ssize(rank_of(report).step_seconds_bins), bins) << "they stay as they are";
}

TEST(Steps, WithinATimeAreCountedInBins) {
  Report report = report_of(120'000);
  rank_of(report).step_seconds.assign(120'000, 1e-3);
  Report binned = report;
  bin_long_lists(binned);
  ASSERT_THAT(rank_of(binned).step_seconds, IsEmpty());
  const TimeSpan time{.begin = 1e9 + 10.0625, .end = 1e9 + 20};
  for (Report* each : {&report, &binned}) {
    const std::span<const Rank> ranks(&rank_of(*each), 1);
    EXPECT_NEAR(steps_within(ranks, warm_up, time), 9937.5, 0.1);
    EXPECT_NEAR(within_windows(ranks, warm_up, {}).end, 1e9 + 119.223, 1e-3);
  }
}

}  // namespace
}  // namespace nearmetal
