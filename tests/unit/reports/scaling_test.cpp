#include "reports/compare/scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "reports/formats/run_tables.h"
#include "tests/support/made_up_runs.h"

namespace nearmetal {
namespace {

RunSet with_ranks(const std::vector<std::pair<std::string, std::vector<double>>>& arms,
                  const std::vector<int64_t>& ranks) {
  Report report = made_up_report(arms);
  for (size_t i = 0; i < ranks.size(); ++i) {
    for (Run& run : report.arms[i].runs) run.world_size = ranks[i];
  }
  RunSet set;
  add_runs(set, report, "made up");
  return set;
}

TEST(Scaling, IsRelativeToTheArmWithTheFewestRanks) {
  const auto points =
      scaling_of(with_ranks({{"4", {390, 400}}, {"1", {100, 102, 98}}, {"2", {200}}}, {4, 1, 2}));
  ASSERT_EQ(points.size(), 3U);
  EXPECT_EQ(points[0].arm, "4");
  EXPECT_EQ(points[0].reference, "1");
  const double one = std::cbrt(100.0 * 102 * 98);
  EXPECT_NEAR(points[0].speedup.value, std::sqrt(390.0 * 400) / one, 1e-12);
  EXPECT_NEAR(points[0].efficiency.value, points[0].speedup.value / 4, 1e-12);
  ASSERT_TRUE(points[0].speedup.interval);
  EXPECT_LT(points[0].speedup.interval->lower, points[0].speedup.value);
  EXPECT_NEAR(points[0].efficiency.interval->upper, points[0].speedup.interval->upper / 4, 1e-12);
  EXPECT_EQ(points[1].speedup.value, 1);
  EXPECT_FALSE(points[1].speedup.interval) << "the reference has no error against itself";
  EXPECT_FALSE(points[2].speedup.interval) << "one run has no spread";
}

TEST(Scaling, TheIdealOfAReferenceOfTwoRanksIsTwo) {
  const auto points = scaling_of(with_ranks({{"2", {200, 201}}, {"4", {380, 381}}}, {2, 4}));
  ASSERT_EQ(points.size(), 2U);
  EXPECT_EQ(points[0].speedup.value, 2);
  EXPECT_NEAR(points[1].efficiency.value, std::sqrt(380.0 * 381 / (200.0 * 201)) / 2, 1e-12);
}

// One rank alone, and two over networks of these rates, each with its throughput.
RunSet over_networks(const std::vector<std::pair<int64_t, double>>& networks) {
  std::vector<std::pair<std::string, std::vector<double>>> arms = {{"one", {100, 100}}};
  for (const auto& [gigabits, throughput] : networks) {
    arms.push_back({"two at " + std::to_string(gigabits), {throughput, throughput}});
  }
  Report report = made_up_report(arms);
  for (size_t i = 0; i < networks.size(); ++i) {
    for (Run& run : report.arms[i + 1].runs) {
      run.world_size = 2;
      run.link_bits_per_second = networks[i].first * 1'000'000'000;
    }
  }
  RunSet set;
  add_runs(set, report, "made up");
  return set;
}

// The table of efficiencies by the rate of the network; empty: there is none.
TitledTable link_table(const RunSet& set) {
  for (TitledTable& table : tables_beside_figures(set)) {
    if (table.title == "Efficiency over the rate of the network") return table;
  }
  return {};
}

std::string reach(const RunSet& set) { return link_table(set).remarks.at(0); }

TEST(Scaling, EfficiencyRisesWithTheRateOfTheNetwork) {
  const RunSet set = over_networks({{25, 198}, {1, 80}, {10, 192}});
  const std::vector<std::vector<std::string>> rows = link_table(set).table.rows;
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0][0], "two at 1");
  EXPECT_EQ(rows[0][1], "1 Gbit/s");
  EXPECT_THAT(rows[0][2], testing::StartsWith("40.0"));
  EXPECT_EQ(rows[2][0], "two at 25");
  EXPECT_EQ(reach(set), "2 ranks against one: 95 % is reached from 10 Gbit/s on");
}

TEST(Scaling, ARateIsEnoughWhereAllHigherOnesAre) {
  EXPECT_THAT(reach(over_networks({{1, 196}, {2, 150}, {10, 192}})),
              testing::EndsWith("95 % is reached from 10 Gbit/s on"));
  for (const auto& networks :
       {std::vector<std::pair<int64_t, double>>{{1, 80}, {10, 152}}, {{1, 152}, {10, 80}}}) {
    EXPECT_THAT(reach(over_networks(networks)),
                testing::EndsWith("95 % is not reached at the highest rate"));
  }
}

TEST(Scaling, OneRateOrRunsOfSeveralMakeNoCurve) {
  EXPECT_TRUE(link_table(over_networks({{10, 190}})).remarks.empty());
  RunSet set = over_networks({{1, 80}, {10, 190}});
  set.arms[1].runs[0].run.link_bits_per_second = int64_t{2'000'000'000};
  EXPECT_TRUE(link_table(set).remarks.empty());
  set = over_networks({{1, 80}, {10, 190}});
  set.arms[2].runs[1].run.link_bits_per_second.reset();
  EXPECT_TRUE(link_table(set).remarks.empty()) << "unclaimed";
}

RunSet with_batches(const std::vector<std::pair<int64_t, int64_t>>& ranks_and_batches) {
  std::vector<std::pair<std::string, std::vector<double>>> arms;
  for (const auto& [ranks, batch] : ranks_and_batches) {
    arms.emplace_back(std::to_string(ranks) + " x " + std::to_string(batch),
                      std::vector<double>{100.0 * static_cast<double>(ranks)});
  }
  Report report = made_up_report(arms);
  for (size_t i = 0; i < arms.size(); ++i) {
    const auto& [ranks, batch] = ranks_and_batches[i];
    RunConfig config = report.invocation.config;
    config.batch = batch;
    config.learning_rate = 1e-5 * static_cast<double>(batch);  // these follow from it by default
    config.loss_scale = LossScale{static_cast<double>(batch)};
    report.arms[i].config = config;
    for (Run& run : report.arms[i].runs) run.world_size = ranks;
  }
  RunSet set;
  add_runs(set, report, "made up");
  return set;
}

TEST(Scaling, TheSameBatchOnEachRankIsWeak) {
  const auto points = scaling_of(with_batches({{1, 64}, {2, 64}, {4, 64}}));
  ASSERT_EQ(points.size(), 3U);
  for (const ScalingPoint& point : points) EXPECT_EQ(scaling_text(point), "weak, 64 a rank");
}

TEST(Scaling, AStageHasAPartOfTheBatch) {
  Report report = made_up_report({{"4", {100}}, {"8", {190}}});
  for (Arm& arm : report.arms) {
    arm.config = report.invocation.config;
    arm.config->batch = 2;
    arm.config->pipeline = 4;
    for (auto& run : arm.runs) run.world_size = arm.name == "4" ? 4 : 8;
  }
  const auto points = scaling_of(set_of(report));
  ASSERT_EQ(points.size(), 2U);
  EXPECT_EQ(scaling_text(points[1]), "weak, 0.5 a rank");
}

TEST(Scaling, TheSameBatchInAllIsStrong) {
  const auto points = scaling_of(with_batches({{1, 256}, {2, 128}, {4, 64}}));
  ASSERT_EQ(points.size(), 3U);
  for (const ScalingPoint& point : points) EXPECT_EQ(scaling_text(point), "strong, 256 in all");
  EXPECT_EQ(points[2].reference, "1 x 256");
  EXPECT_NEAR(points[2].speedup.value, 4, 1e-12);
}

TEST(Scaling, BothMayStartFromTheSameArm) {
  const auto points = scaling_of(with_batches({{1, 64}, {2, 64}, {2, 32}}));
  ASSERT_EQ(points.size(), 3U);
  EXPECT_EQ(scaling_text(points[1]), "weak, 64 a rank");
  EXPECT_EQ(scaling_text(points[2]), "strong, 64 in all");
  EXPECT_EQ(points[2].reference, "1 x 64");
}

TEST(Scaling, NothingIsAReferenceOfNone) {
  const auto points = scaling_of(with_batches({{1, 128}, {2, 64}, {4, 64}}));
  ASSERT_EQ(points.size(), 2U) << "that of two ranks is a reference itself";
  EXPECT_EQ(points[0].arm, "2 x 64");
}

TEST(Scaling, NeitherBatchTheSameIsNoScaling) {
  EXPECT_TRUE(scaling_of(with_batches({{1, 64}, {2, 48}})).empty());
}

// Layouts of one machine whose CPUs are split among the ranks.
RunSet with_threads(const std::vector<std::pair<int64_t, int64_t>>& ranks_and_threads) {
  Report report = made_up_report({{"a", {100}}, {"b", {19}}, {"c", {36}}});
  for (size_t i = 0; i < report.arms.size(); ++i) {
    Arm& arm = report.arms[i];
    arm.config = report.invocation.config;
    arm.config->device = arm.runs[0].device = Device::cpu;
    std::tie(arm.runs[0].world_size, arm.config->threads) = ranks_and_threads.at(i);
  }
  RunSet set;
  add_runs(set, report, "made up");
  return set;
}

TEST(Scaling, NamesTheReferenceOrWhyThereIsNone) {
  const RunSet set = with_threads({{1, 4}, {2, 2}, {4, 2}});
  const auto points = scaling_of(set);
  ASSERT_EQ(points.size(), 2U);
  EXPECT_EQ(points[0].against, "reference: 'a' differs in threads");
  EXPECT_EQ(points[1].against, "b");
  EXPECT_EQ(without_reference_text(set, set.arms[0]), "none has fewer ranks");
  const RunSet none = with_threads({{1, 4}, {2, 2}, {4, 1}});
  EXPECT_TRUE(scaling_of(none).empty());
  EXPECT_EQ(without_reference_text(none, none.arms[2]), "none: 'a' differs in threads");
  EXPECT_EQ(scaling_of(with_batches({{1, 64}, {2, 64}}))[0].against, "reference");
}

TEST(Scaling, SaysWhereRanksDivideCpus) {
  RunSet set = with_threads({{1, 2}, {2, 2}, {2, 2}});
  set.environments[0].usable_cpus = 2;
  ASSERT_EQ(arm_remarks(set).size(), 1U);
  EXPECT_NE(arm_remarks(set)[0].find("divide its CPUs"), std::string::npos);
  set.environments[0].usable_cpus = 4;
  EXPECT_TRUE(arm_remarks(set).empty());
}

TEST(Scaling, HasNoColumnsOfAReferenceForASingleArm) {
  EXPECT_EQ(scaling_table(with_ranks({{"a", {1, 2}}}, {1})).columns.back().title,
            "images/s [95 %]");
  EXPECT_EQ(scaling_table(with_ranks({{"a", {1}}, {"b", {2}}}, {1, 2})).columns.back().title,
            "against");
}

TEST(Scaling, NeedsTwoNumbersOfRanksOfTheSameWork) {
  EXPECT_TRUE(scaling_of({}).empty());
  EXPECT_TRUE(scaling_of(with_ranks({{"a", {1, 2}}, {"b", {1, 2}}}, {2, 2})).empty());
  RunSet other = with_ranks({{"a", {1, 2}}, {"b", {1, 2}}}, {1, 2});
  EXPECT_EQ(scaling_of(other).size(), 2U);
  for (SetRun& run : other.arms[1].runs) run.run.status = Status::failed;
  EXPECT_TRUE(scaling_of(other).empty());
  Report report = made_up_report({{"a", {1, 2}}, {"b", {1, 2}}});
  report.arms[1].kind = Kind::emulated;
  for (auto& run : report.arms[1].runs) run.world_size = 2;
  RunSet kinds;
  add_runs(kinds, report, "made up");
  EXPECT_TRUE(scaling_of(kinds).empty()) << "measured and emulated are never mixed";
}

TEST(Scaling, ItsTableHasTheLatencyOfInference) {
  RunSet set = with_ranks({{"a", {100, 102}}, {"b", {200}}}, {1, 1});
  const size_t columns = scaling_table(set).columns.size();
  set.arms[0].runs[0].run.ranks[0].latency =
      Latency{.steps = 1000, .median_seconds = 0.002, .p95_seconds = 0.003, .p99_seconds = 0.004};
  const TextTable table = scaling_table(set);
  ASSERT_EQ(table.columns.size(), columns + 2);
  EXPECT_EQ(table.columns[4].title, "latency p50, ms");
  EXPECT_EQ(table.columns[5].title, "p99, ms");
  EXPECT_EQ(table.rows[0][4], "2.000");
  EXPECT_EQ(table.rows[0][5], "4.000");
  EXPECT_EQ(table.rows[1][5], "-");
  for (const auto& row : table.rows) EXPECT_EQ(row.size(), table.columns.size());
}

}  // namespace
}  // namespace nearmetal
