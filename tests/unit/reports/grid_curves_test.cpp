#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "reports/compare/scaling.h"
#include "reports/formats/benchmark_text.h"
#include "reports/formats/charts/charts.h"
#include "reports/formats/run_tables.h"
#include "reports/json/json.h"
#include "tests/support/made_up_runs.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using GridSettings = std::map<std::string, std::string>;

struct GridArm {
  GridSettings settings;
  std::vector<double> throughputs;
  std::string layout = "1x1x1";
  int64_t ranks = 1;
};

Report report_of(const std::vector<GridArm>& arms) {
  std::vector<std::pair<std::string, std::vector<double>>> named;
  for (size_t i = 0; i < arms.size(); ++i) {
    named.emplace_back("arm " + std::to_string(i), arms[i].throughputs);
  }
  Report report = made_up_report(named);
  for (size_t i = 0; i < arms.size(); ++i) {
    report.arms[i].grid = GridPoint{arms[i].layout, arms[i].settings};
    for (Run& run : report.arms[i].runs) run.world_size = arms[i].ranks;
  }
  return report;
}

RunSet set_of(const std::vector<GridArm>& arms) {
  RunSet set;
  add_runs(set, report_of(arms), "made up");
  return set;
}

GridSettings batch(int64_t size) { return {{"batch", std::to_string(size)}}; }

const std::vector<GridArm> rising = {{batch(128), {990, 1000}},
                                     {batch(32), {500, 510}},
                                     {batch(64), {965, 970}},
                                     {batch(256), {1000, 1010}}};

TEST(GridCurves, NumbersRiseAndOthersKeepTheirOrder) {
  const RunSet set = set_of(rising);
  const std::vector<GridCurve> curves = grid_curves(set);
  ASSERT_EQ(curves.size(), 1);
  EXPECT_EQ(curves[0].others, "");
  std::vector<std::string> values;
  for (const CurvePoint& point : curves[0].points) values.push_back(point.value);
  EXPECT_THAT(values, ElementsAre("32", "64", "128", "256"));
  const RunSet words = set_of({{{{"precision", "fp16"}}, {9}}, {{{"precision", "bf16"}}, {8}}});
  EXPECT_EQ(grid_curves(words).at(0).points.at(0).value, "fp16");
  EXPECT_FALSE(knee_of(grid_curves(words).at(0)));
}

TEST(GridCurves, EachSettingIsShownWithTheOthersFixed) {
  std::vector<GridArm> arms;
  for (const char* precision : {"fp16", "bf16"}) {
    for (const char* size : {"32", "64"}) {
      arms.push_back({{{"batch", size}, {"precision", precision}, {"model", "resnet50"}}, {100}});
    }
  }
  arms.pop_back();  // bf16 with 64: it did not run
  const RunSet set = set_of(arms);
  std::vector<std::string> names;
  for (const GridCurve& curve : grid_curves(set)) {
    names.push_back(curve.setting + " of " + curve.others + ": " +
                    std::to_string(curve.points.size()));
  }
  EXPECT_THAT(names, ElementsAre("batch of precision fp16: 2", "precision of batch 32: 2"));
}

TEST(GridCurves, TheKneeIsTheSmallestBatchNearTheBest) {
  const RunSet set = set_of(rising);
  const GridCurve curve = grid_curves(set).at(0);
  const std::optional<Knee> knee = knee_of(curve);
  ASSERT_TRUE(knee);
  EXPECT_EQ(knee->point->value, "64");
  EXPECT_EQ(knee->best->value, "256");
  EXPECT_NEAR(knee->share.value, std::sqrt(965.0 * 970 / (1000.0 * 1010)), 1e-12);
  ASSERT_TRUE(knee->share.interval);
  EXPECT_LT(knee->share.interval->lower, knee->share.value);
  EXPECT_GT(knee->share.interval->upper, knee->share.value);
  EXPECT_TRUE(knee->best_is_largest);
  const TitledTable table = knee_table(set);
  EXPECT_THAT(table.table.rows.at(0), ElementsAre("all", "batch 64", testing::_, testing::_,
                                                  "batch 256, the largest that ran"));
  const RunSet falling = set_of({{batch(32), {100}}, {batch(64), {90}}});
  const GridCurve best_first = grid_curves(falling).at(0);
  EXPECT_EQ(knee_of(best_first)->point->value, "32");
  EXPECT_FALSE(knee_of(best_first)->share.interval);
  EXPECT_FALSE(knee_of(best_first)->best_is_largest);
}

TEST(GridCurves, ArmsWithoutACompleteRunAndReportsWithoutAGridHaveNone) {
  Report report = report_of(rising);
  for (Arm& arm : report.arms) arm.runs[0].status = arm.runs[1].status = Status::partial;
  RunSet set;
  add_runs(set, report, "made up");
  EXPECT_TRUE(grid_curves(set).empty());
  EXPECT_TRUE(grid_charts(set).empty());
  EXPECT_TRUE(knee_table(made_up_set({{"a", {1}}, {"b", {2}}})).table.rows.empty());
}

TEST(GridCurves, SpeedupsAreWithinOneCombination) {
  std::vector<GridArm> arms;
  for (const char* bucket : {"1", "32"}) {  // not part of the comparable key
    arms.push_back({{{"bucket_mib", bucket}}, {100, 101}, "1x1x1", 1});
    arms.push_back({{{"bucket_mib", bucket}}, {190, 191}, "1x1x2", 2});
  }
  std::vector<std::string> pairs;
  for (const ScalingPoint& point : scaling_of(set_of(arms))) {
    pairs.push_back(point.arm + " against " + point.reference);
  }
  EXPECT_THAT(pairs, ElementsAre("arm 0 against arm 0", "arm 1 against arm 0",
                                 "arm 2 against arm 2", "arm 3 against arm 2"));
}

TEST(GridCurves, ChartsHoldACurveForEachCombinationAndTheKnee) {
  std::vector<GridArm> arms = rising;
  for (GridArm& arm : arms) arm.settings["precision"] = "fp16";
  for (const int64_t size : {32, 64}) {
    arms.push_back({{{"batch", std::to_string(size)}, {"precision", "bf`16'\n"}}, {400}});
  }
  const RunSet set = set_of(arms);
  const std::vector<Chart> charts = grid_charts(set);
  ASSERT_EQ(charts.size(), 2) << "two settings";
  const Chart& chart = charts[0];
  EXPECT_EQ(chart.name, "throughput_over_batch");
  EXPECT_THAT(csv_of(chart), HasSubstr("\"precision fp16\",measured,point,64,967."));
  EXPECT_TRUE(chart.plots[0].x.log2);
  EXPECT_THAT(svg_element(chart), HasSubstr(">precision bf`16'?</text>"));
  EXPECT_THAT(svg_element(chart), HasSubstr(">smallest within 5 % of the best</text>"));
  EXPECT_THAT(chart.table.rows.at(1),
              ElementsAre("arm 2", "64", testing::_, "2", "knee", "-", "-"));
  EXPECT_EQ(charts[1].name, "throughput_over_precision");
  for (const Series& series : charts[1].plots[0].series) {
    EXPECT_EQ(series.look, Look::points) << "words have no between";
  }
}

TEST(GridCurves, EnergyIsThatOfAllGpusAndMemoryThatOfTheFullest) {
  Report report = report_of(rising);
  report.environments.at(0).gpus.at(0).pci_id = std::string("0000:17:00.0");
  for (Arm& arm : report.arms) {
    for (nearmetal::Run& run : arm.runs) {
      run.ranks[0].monitoring->series = {{"power_watts", 400, 500, 600, {}},
                                         {"memory_used_bytes", 1e9, 2e9, 3e9, {}}};
    }
  }
  RunSet set;
  add_runs(set, report, "made up");
  const std::vector<Chart> charts = grid_charts(set);
  ASSERT_EQ(charts.size(), 1);
  EXPECT_THAT(charts[0].table.rows.at(0),
              ElementsAre("arm 1", "32", testing::_, "2", "-", "3.000", "1.010"));
  EXPECT_THAT(charts[0].caption, testing::Not(HasSubstr("not known")));
  report.environments.at(0).gpus.at(0).pci_id = Unknown{"not told"};
  RunSet unknown;
  add_runs(unknown, report, "made up");
  EXPECT_THAT(grid_charts(unknown).at(0).caption,
              HasSubstr("Power is not known: not every rank has a GPU of its own."));
}

TEST(GridCurves, JunitSkipsWhatIsUnsupported) {
  RunSet set = made_up_set({{"batch 2", {100, 102}}});
  set.unsupported = {{"batch 4", "out of <memory>"}};
  std::ostringstream text;
  print_junit(text, set);
  EXPECT_THAT(text.str(), HasSubstr("tests=\"3\" failures=\"0\" errors=\"0\" skipped=\"1\""));
  EXPECT_THAT(text.str(),
              HasSubstr("<testcase classname=\"nearmetal.batch 4\" name=\"unsupported\" "
                        "time=\"0.000\">\n    <skipped message=\"out of &lt;memory&gt;\"/>\n"));
}

TEST(GridCurves, AReportKeepsThem) {
  const Report report = report_of(rising);
  EXPECT_EQ(report_from_json(to_json(report)).arms.at(1).grid, report.arms[1].grid);
}

}  // namespace
}  // namespace nearmetal
