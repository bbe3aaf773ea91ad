#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "bench/monitor/monitor.h"
#include "bench/monitor/monitor_sources.h"
#include "reports/document/warning.h"
#include "reports/statistics/inference.h"

namespace nearmetal {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// `rows` samples at 10 Hz of one clock, by row.
template <class Clock>
MonitorTable table_of(size_t rows, const Clock& clock) {
  MonitorTable table;
  table.names = {"sm_clock_hertz", "cpu_steal_share", "cpus_busy_with_others"};
  for (size_t i = 0; i < rows; ++i) {
    table.seconds.push_back(5 + 0.1 * static_cast<double>(i));
    table.values.insert(table.values.end(), {clock(i), 0, 0.1});
    table.throttle_bits.push_back(0);
  }
  return table;
}

MonitorTable quiet(size_t rows = 40) {
  return table_of(rows, [](size_t) { return 1.98e9; });
}

TEST(MonitorVerdict, IsCleanWhereNothingHappens) {
  const Monitoring result = judge_samples(quiet());
  EXPECT_EQ(result.verdict, MonitorVerdict::clean);
  EXPECT_THAT(texts_of(result.reasons), ElementsAre());
  EXPECT_NEAR(result.interval_seconds, 0.1, 1e-12);
  EXPECT_EQ(result.series.at(0).values.size(), 40);
  EXPECT_EQ(result.series.at(0).mean, 1.98e9);
}

TEST(MonitorVerdict, HeatThrottlesAndAPowerLimitIsOnlySaid) {
  MonitorTable table = quiet();
  for (auto& bits : table.throttle_bits) bits = 0x4;
  EXPECT_EQ(judge_samples(table).verdict, MonitorVerdict::clean);
  EXPECT_THAT(texts_of(judge_samples(table).reasons),
              ElementsAre(HasSubstr("power limit in 100 %")));
  table.throttle_bits[7] |= 0x40;
  EXPECT_EQ(judge_samples(table).verdict, MonitorVerdict::throttled);
}

// A look that came late stands for all the time since the one before.
TEST(MonitorVerdict, MeansAreOverTheTime) {
  MonitorTable table;
  table.names = {"cpu_busy_share"};
  table.seconds = {1, 2, 3, 10};
  table.values = {0, 0, 0, 1};
  table.throttle_bits.resize(4);
  EXPECT_NEAR(judge_samples(table).series.at(0).mean, .7, 1e-12);
  halve(table);
  EXPECT_EQ(table.values, (std::vector<double>{0, .875}));
  EXPECT_EQ(table.seconds, (std::vector<double>{2, 10}));
}

TEST(MonitorVerdict, ADriftIsToldBelowTheMarginOfComparisons) {
  EXPECT_LT(monitor_reason_kind("clock_changed")->limit, DecisionRule{}.margin);
}

TEST(MonitorVerdict, AClockThatFallsHasDrifted) {
  const auto falling = [](size_t row) { return 2e9 - 1e6 * static_cast<double>(row); };
  EXPECT_EQ(judge_samples(table_of(40, falling)).verdict, MonitorVerdict::clean) << "by 1.5 %";
  EXPECT_EQ(judge_samples(table_of(80, falling)).verdict, MonitorVerdict::drifted) << "by 3 %";
  const auto late = [](size_t row) { return row < 60 ? 2e9 : 1.95e9; };
  EXPECT_EQ(judge_samples(table_of(80, late)).verdict, MonitorVerdict::drifted) << "at the end";
}

TEST(MonitorVerdict, TheClockOfCpusCountsWhereTheyCompute) {
  MonitorTable table = table_of(80, [](size_t row) { return row < 60 ? 2e9 : 1.5e9; });
  table.names[0] = "cpu_hertz";
  EXPECT_EQ(judge_samples(table).verdict, MonitorVerdict::drifted);
  EXPECT_EQ(judge_samples(table, {.on_all_cpus = false}).verdict, MonitorVerdict::clean)
      << "they wait, for a GPU or for work";
}

TEST(MonitorVerdict, AQuotaThatStopsThreadsThrottles) {
  MonitorTable table = quiet();
  table.held_share = 0.005;
  EXPECT_EQ(judge_samples(table).verdict, MonitorVerdict::clean);
  table.held_share = 0.49;
  EXPECT_EQ(judge_samples(table).verdict, MonitorVerdict::throttled);
  EXPECT_THAT(texts_of(judge_samples(table).reasons),
              ElementsAre("the control group's quota of CPUs stopped threads in 49.0 % of its "
                          "periods"));
}

TEST(MonitorVerdict, WhatTheDriverDoesNotAnswerIsNotZero) {
  for (const char* lost : {"gpu_processes", "clock_event_reasons"}) {
    MonitorTable table = quiet();
    table.not_monitored[lost] = "Not Supported";
    EXPECT_EQ(judge_samples(table).verdict, MonitorVerdict::unknown) << lost;
    EXPECT_THAT(texts_of(judge_samples(table).reasons),
                ElementsAre(std::string(lost) + " is not known: Not Supported"));
  }
}

TEST(MonitorVerdict, OthersOnTheGpuOrTheCpusShareIt) {
  MonitorTable table = quiet();
  table.most_processes = int64_t{2};
  EXPECT_EQ(judge_samples(table).verdict, MonitorVerdict::shared);
  table = quiet();
  for (size_t row = 0; row < 40; ++row) table.values[3 * row + 1] = 0.05;
  EXPECT_EQ(judge_samples(table).verdict, MonitorVerdict::shared);
  EXPECT_THAT(texts_of(judge_samples(table).reasons), Contains(HasSubstr("5.00 % of the CPUs")));
  table = quiet();
  for (size_t row = 0; row < 40; ++row) table.values[3 * row + 2] = 1.5;
  EXPECT_EQ(judge_samples(table).verdict, MonitorVerdict::shared);
  EXPECT_THAT(texts_of(judge_samples(table).reasons),
              ElementsAre("other processes kept 1.50 CPUs busy"));
}

TEST(MonitorVerdict, OthersMayUseOnePercentOfManyCpus) {
  MonitorTable table = quiet();
  for (size_t i = 2; i < table.values.size(); i += 3) table.values[i] = 1.3;
  EXPECT_EQ(judge_samples(table, {.logical_cpus = 2}).verdict, MonitorVerdict::shared);
  const Monitoring result = judge_samples(table, {.logical_cpus = 192});
  EXPECT_EQ(result.verdict, MonitorVerdict::clean);
  EXPECT_THAT(texts_of(result.reasons), ElementsAre());
}

TEST(MonitorVerdict, APcieLinkThatNeverRisesIsTold) {
  MonitorTable table;
  table.names = {"link_generation", "link_width"};
  table.seconds = {1, 2, 3};
  table.values = {2, 16, 2, 16, 2, 16};
  table.throttle_bits = {0, 0, 0};
  table.largest_link_rate = pcie_rate(5, 16);
  EXPECT_THAT(texts_of(judge_samples(table).reasons),
              Contains(HasSubstr("the PCIe link stayed 84.4 % below")));
  table.values[2] = 5;  // under load once, which idle moments do not change
  EXPECT_THAT(texts_of(judge_samples(table).reasons), Not(Contains(HasSubstr("PCIe"))));
}

TEST(MonitorVerdict, OthersThatAreMeantToBeThereDoNotCount) {
  MonitorTable table = quiet();
  table.most_processes = int64_t{4};
  for (size_t row = 0; row < 40; ++row) table.values[3 * row + 2] = 3;
  EXPECT_EQ(judge_samples(table, {.sharing_jobs = 4}).verdict, MonitorVerdict::clean);
  EXPECT_EQ(judge_samples(table, {.sharing_jobs = 3}).verdict, MonitorVerdict::shared);
  EXPECT_EQ(judge_samples(table, {.sharing_jobs = 3, .through_mps = true}).verdict,
            MonitorVerdict::clean)
      << "a server";
}

constexpr double not_told = std::numeric_limits<double>::quiet_NaN();

TEST(MonitorVerdict, WhatIsNotReportedHasNoSeriesAndIsNotClean) {
  MonitorTable table = quiet();
  table.values[4] = not_told;
  const Monitoring result = judge_samples(table);
  EXPECT_EQ(result.series.size(), 2);
  EXPECT_TRUE(result.not_monitored.contains("cpu_steal_share"));
  EXPECT_EQ(result.verdict, MonitorVerdict::unknown);
  EXPECT_THAT(texts_of(result.reasons), ElementsAre(HasSubstr("cpu_steal_share is not known")));
  table.throttle_bits[7] |= 0x40;
  EXPECT_EQ(judge_samples(table).verdict, MonitorVerdict::throttled) << "that much is known";
}

TEST(MonitorVerdict, WhatOthersDoNeedNotBeKnownWhereJobsShare) {
  MonitorTable table = quiet();
  table.values[5] = not_told;
  EXPECT_EQ(judge_samples(table).verdict, MonitorVerdict::unknown);
  EXPECT_EQ(judge_samples(table, {.sharing_jobs = 2}).verdict, MonitorVerdict::clean);
}

TEST(MonitorVerdict, AllOfALongRunWeighsAlike) {
  constexpr double hour = 3600;
  std::mt19937_64 engine(7);
  std::bernoulli_distribution throttled(0.01);
  MonitorTable table;
  table.names = {"cpu_steal_share"};
  double seconds = 0;
  while (seconds < hour) {
    if (table.seconds.size() == 8192) halve(table);
    table.seconds.push_back(seconds);
    table.values.push_back(seconds < hour / 2 ? 1 : 0);
    table.throttle_bits.push_back(throttled(engine) ? 0x4 : 0);
    seconds += table.interval_seconds;
  }
  const Monitoring result = judge_samples(table);
  EXPECT_NEAR(result.series.at(0).mean, 0.5, 0.001);
  const auto found = std::ranges::count(table.throttle_bits, 0x4U);
  EXPECT_NEAR(static_cast<double>(found) / static_cast<double>(result.samples), 0.01, 0.004);
}

TEST(MonitorVerdict, LongWindowsHaveShortSeries) {
  const Monitoring result = judge_samples(quiet(3001));
  EXPECT_LE(result.series[0].values.size(), 300);
  EXPECT_NEAR(result.interval_seconds, 1.1, 1e-9);
  EXPECT_EQ(result.samples, 3001);
}

TEST(MonitorVerdict, OnADeviceOfItsOwnASecondProcessIsShared) {
  MonitorTable table;
  table.most_processes = int64_t{2};
  EXPECT_EQ(judge_samples(table, {.mig_uuid = "MIG-1", .sharing_jobs = 4}).verdict,
            MonitorVerdict::shared);
  EXPECT_EQ(judge_samples(table, {.sharing_jobs = 4}).verdict, MonitorVerdict::clean);
}

}  // namespace
}  // namespace nearmetal
