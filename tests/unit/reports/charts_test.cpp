#include "reports/formats/charts/charts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reports/formats/charts/step_charts.h"
#include "reports/formats/charts/throughput_charts.h"
#include "tests/support/made_up_arms.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;
using testing::Not;

size_t lines_of(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST(Chart, EachHasDataPictureCaptionAndTable) {
  for (const Chart& chart : charts_of({set_of_report(full_report())})) {
    EXPECT_EQ(chart.missing, "") << chart.name;
    EXPECT_GT(lines_of(csv_of(chart)), 1U) << chart.name;
    EXPECT_THAT(svg_element(chart), HasSubstr("<text")) << chart.name;
    EXPECT_THAT(svg_element(chart), Not(HasSubstr("nan"))) << chart.name;
    EXPECT_FALSE(chart.table.rows.empty()) << chart.name;
    const bool of_one_run = chart.name == "profile";
    EXPECT_THAT(chart.caption, HasSubstr(of_one_run ? "One run" : "n = ")) << chart.name;
  }
}

TEST(Chart, SaysWhatIsMissing) {
  Report report = made_up_report({{"1x1", {1000}}});
  report.arms[0].runs[0].status = Status::partial;
  for (const Chart& chart : charts_of({set_of_report(report)})) {
    EXPECT_NE(chart.missing, "") << chart.name;
    EXPECT_TRUE(chart.plots.empty()) << chart.name;
  }
  const RunSet figures = set_of_report(full_report(), false);
  EXPECT_NE(step_strip_chart(shown_arms(figures)).missing, "");
  EXPECT_NE(profile_chart(shown_arms(figures)).missing, "");
  for (const Chart& chart : charts_of(GroupedRuns{})) EXPECT_NE(chart.missing, "");
}

TEST(Chart, StagesAreDrawnOneBelowTheOtherByTime) {
  Report report = full_report();
  nearmetal::Run& run = report.arms[0].runs[0];
  run.pipeline.emplace();
  run.ranks[0].stage.emplace().marks = {{{Pass::forward, 0}, 0, 0.001},
                                        {{Pass::backward, 0}, 0.004, 0.006}};
  run.ranks.push_back(run.ranks[0]);
  run.ranks[1].stage->stage = 1;
  run.ranks[1].stage->marks = {{{Pass::forward, 0}, 100, 100.001},
                               {{Pass::backward, 0}, 100.001, 100.003}};
  report.arms[0].runs.resize(1);
  const RunSet set = set_of_report(report);
  const Chart chart = pipeline_chart(shown_arms(set));
  EXPECT_EQ(chart.missing, "");
  EXPECT_THAT(csv_of(chart), HasSubstr("\"forward\",measured,box,\"1x1, stage 1\",2,1,2,\"0\"\n"))
      << "on one clock";
  EXPECT_THAT(csv_of(chart), HasSubstr("\"backward\",measured,box,\"1x1, stage 0\",6,4,6,\"0\"\n"));
  EXPECT_THAT(svg_element(chart), HasSubstr(">1x1, stage 1</text>"));
  EXPECT_EQ(charts_of({set}).back().name, "pipeline");
  EXPECT_NE(pipeline_chart(shown_arms(RunSet{})).missing, "");
}

// Arms of equal ranks, of which no curve is made.
RunSet bars_set() { return made_up_set({{"1x1", {1000, 1010}}, {"other", {500, 502, 501, 501}}}); }

TEST(Chart, BarsHoldMeansIntervalsAndRuns) {
  const Chart chart = throughput_chart(shown_arms(bars_set()));
  EXPECT_THAT(csv_of(chart), HasSubstr("\"single runs\",measured,point,\"1x1\",1010,,,\n"));
  EXPECT_THAT(csv_of(chart), HasSubstr("\"\",measured,bar,\"1x1\",1005,,,\n")) << "the median";
  EXPECT_THAT(csv_of(chart), HasSubstr("\"\",measured,bar,\"other\",500.999"));
  EXPECT_THAT(chart.table.rows[0][1], testing::StartsWith("1005 (1000 to 1010)"));
}

TEST(Chart, KindsLookDifferent) {
  Report report = full_report();
  report.arms[1].kind = Kind::emulated;
  const RunSet set = set_of_report(report);
  const std::string drawn = svg_element(throughput_chart(shown_arms(set)));
  EXPECT_THAT(drawn, HasSubstr(">emulated</text>"));
  EXPECT_THAT(drawn, HasSubstr("fill-opacity=\"0.7\""));
  EXPECT_THAT(drawn, HasSubstr("fill-opacity=\"0\""));
  EXPECT_THAT(svg_element(step_strip_chart(shown_arms(set))), HasSubstr(">1x2, emulated</text>"));
  EXPECT_NE(speedup_chart(shown_arms(set)).missing, "") << "kinds are not held against each other";
}

TEST(Chart, ThinningHidesNoOutlier) {
  Report report = made_up_report({{"1x1", {1000}}});
  nearmetal::Run& run = report.arms[0].runs[0];
  run.ranks[0].step_seconds.assign(20'000, 0.1);
  run.ranks[0].step_seconds[7'777] = 0.4;
  run.ranks[0].step_seconds[13'333] = 0.02;
  run.window = TimedWindow{.first_step = 0, .steps = 20'000, .samples = 1, .seconds = 2000};
  const Chart chart = step_strip_chart(shown_arms(set_of_report(report)));
  EXPECT_THAT(csv_of(chart), HasSubstr(",7778,400,,,\n"));
  EXPECT_THAT(csv_of(chart), HasSubstr(",13334,20,,,\n"));
  EXPECT_LE(lines_of(csv_of(chart)), 1001U);
}

TEST(Chart, OfSeveralJobsStepsAreThoseOfEachJobsOwnWindow) {
  Report report = made_up_report({{"two", {1000}}});
  nearmetal::Run& run = report.arms[0].runs[0];
  run.ranks.resize(1);
  run.ranks.push_back(run.ranks[0]);
  run.ranks[0].step_seconds = {9, 9, 9, 0.1, 0.1, 0.1};
  run.ranks[1].step_seconds = {9, 0.3, 0.3};
  run.window = TimedWindow{.first_step = 3, .steps = 3, .samples = 1, .seconds = 1};
  run.jobs = {{1, 500, 0, 3, 3}, {1, 500, 0, 1, 2}};
  RunSet set = set_of_report(report);
  EXPECT_THAT(csv_of(step_strip_chart(shown_arms(set))),
              HasSubstr("\"\",measured,line,1,300,,,\n\"\",measured,line,2,300,,,\n"));
  run.jobs = {{1, 500, 0}, {1, 500, 0}};
  EXPECT_NE(step_strip_chart(shown_arms(set_of_report(report))).missing, "") << "a report of old";
}

TEST(Chart, ArmsWithoutAStripAreCounted) {
  std::vector<std::pair<std::string, std::vector<double>>> arms;
  for (int i = 0; i < 10; ++i) arms.push_back({"arm " + std::to_string(i), {1000}});
  Report report = made_up_report(arms);
  for (Arm& arm : report.arms) {
    arm.runs[0].ranks[0].step_seconds = {0.1, 0.1, 0.1};
    arm.runs[0].window = TimedWindow{.first_step = 0, .steps = 3, .samples = 1, .seconds = 1};
  }
  const RunSet set = set_of_report(report);
  EXPECT_THAT(step_distribution_chart(shown_arms(set)).caption, HasSubstr("2 more are not shown"));
}

// A report with one run of these step times.
Report report_of_steps(const std::vector<double>& seconds) {
  Report report = made_up_report({{"1x1", {1000}}});
  nearmetal::Run& run = report.arms[0].runs[0];
  run.ranks[0].step_seconds = seconds;
  run.window =
      TimedWindow{.first_step = 0, .steps = std::ssize(seconds), .samples = 1, .seconds = 1};
  return report;
}

TEST(Chart, TheDistributionOfThreeStepsRisesByThirds) {
  const RunSet set = set_of_report(report_of_steps({1.259, 0.582, 1.776}));
  const Chart chart = step_distribution_chart(shown_arms(set));
  std::vector<std::pair<double, double>> rises;
  for (const Mark& mark : chart.plots[0].series[0].marks) rises.emplace_back(mark.x, mark.y);
  ASSERT_EQ(rises.size(), 7U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_DOUBLE_EQ(rises[2 * i].second, 100.0 * static_cast<double>(i) / 3);
    EXPECT_DOUBLE_EQ(rises[2 * i + 1].second, 100.0 * static_cast<double>(i + 1) / 3);
    EXPECT_DOUBLE_EQ(rises[2 * i].first, rises[2 * i + 1].first);
  }
  EXPECT_EQ(chart.table.rows[0][4], "-") << "no 95th percentile of three steps";
  EXPECT_THAT(chart.caption, Not(HasSubstr("99 %")));
}

TEST(Chart, SaysThatTimeDoesNotBeginAtZeroOnlyWhereItDoesNot) {
  const auto caption = [](const std::vector<double>& seconds) {
    const RunSet set = set_of_report(report_of_steps(seconds));
    return step_distribution_chart(shown_arms(set)).caption;
  };
  EXPECT_THAT(caption({0.1, 0.11}), HasSubstr("does not begin at zero"));
  EXPECT_THAT(caption({0.001, 0.1}), Not(HasSubstr("does not begin at zero")));
}

TEST(Chart, NamesAreTextOnly) {
  Report report = full_report();
  report.arms[0].name = "<script>\"&\n";
  for (const Chart& chart : charts_of({set_of_report(report)})) {
    EXPECT_THAT(svg_file(chart), Not(HasSubstr("<script>"))) << chart.name;
  }
}

// What stands in the picture, in its order.
std::vector<std::string> texts_of(const Chart& chart) {
  const std::string svg = svg_element(chart);
  std::vector<std::string> texts;
  for (size_t at = svg.find("<text"); at != svg.npos; at = svg.find("<text", at)) {
    const size_t begin = svg.find('>', at) + 1;
    at = svg.find("</text>", begin);
    texts.push_back(svg.substr(begin, at - begin));
  }
  return texts;
}

TEST(Chart, LongNamesTakeTwoLinesAndLeaveThePlotItsWidth) {
  const auto names = [](const std::string& name) {
    return texts_of(throughput_chart(shown_arms(made_up_set({{name, {1000}}, {"b", {1000}}}))));
  };
  EXPECT_THAT(names("4 jobs, MPS 25 percent, batch 128"),
              testing::IsSupersetOf({"4 jobs, MPS 25", "percent, batch 128"}));
  const std::vector<std::string> words =
      names("a name of so many words that two lines do not hold it all");
  EXPECT_THAT(words, testing::Contains("a name of so many"));
  EXPECT_THAT(words, testing::Contains(testing::EndsWith("..")));
  for (const std::string& text : names(std::string(90, 'x'))) EXPECT_LE(text.size(), 40U);
}

TEST(Chart, ManyArmsAreCutAndSaid) {
  std::vector<std::pair<std::string, std::vector<double>>> arms;
  for (int i = 0; i < 30; ++i) arms.push_back({"arm " + std::to_string(i), {1000, 1001}});
  const RunSet set = made_up_set(arms);
  EXPECT_THAT(throughput_chart(shown_arms(set)).caption, HasSubstr("6 more are not shown"));
}

TEST(Chart, TicksAreRound) {
  EXPECT_DOUBLE_EQ(tick_step(10, 5), 2);
  EXPECT_DOUBLE_EQ(tick_step(41'738, 5), 10'000);
  EXPECT_DOUBLE_EQ(tick_step(0.046, 2), 0.025);
  EXPECT_DOUBLE_EQ(tick_step(99, 10), 10);
  EXPECT_DOUBLE_EQ(tick_step(10.5, 5), 2.5) << "not 5, which would leave two ticks";
}

// Two runs of each arm that lie far apart: the interval of their speedup is a thousand times as
// long.
RunSet hardly_known_set() {
  Report report = full_report();
  for (Arm& arm : report.arms) {
    arm.runs[0].throughput = 500;
    arm.runs[1].throughput = 2000;
  }
  return set_of_report(report);
}

// The place, from above, of the first mark of this look.
double position_of(const Chart& chart, Look look) {
  return std::ranges::find(chart.plots[0].series, look, &Series::look)->marks[0].y;
}

// Of as few runs throughput is a median without a whisker.
RunSet hardly_known_bars() {
  return made_up_set({{"1x1", {100, 10'000, 100, 10'000}}, {"other", {100, 10'000, 100, 10'000}}});
}

TEST(Chart, WritesTheValueAboveAWhiskerThatIsCut) {
  const Chart cut = throughput_chart(shown_arms(hardly_known_bars()));
  EXPECT_LT(position_of(cut, Look::labels), position_of(cut, Look::bars));
  const Chart whole = throughput_chart(shown_arms(bars_set()));
  EXPECT_EQ(position_of(whole, Look::labels), position_of(whole, Look::bars));
}

TEST(Chart, CutsWhiskersThatWouldHideTheirPoints) {
  const RunSet set = hardly_known_set();
  for (const auto& [chart, most] :
       {std::pair(speedup_chart(shown_arms(set)), 10.0),
        std::pair(efficiency_chart(shown_arms(set)), 240.0),
        std::pair(throughput_chart(shown_arms(hardly_known_bars())), 24'001.0)}) {
    EXPECT_THAT(texts_of(chart), testing::Contains("whiskers are cut: see the table"))
        << chart.name;
    const Plot& plot = chart.plots[0];
    EXPECT_LE(plot.rows ? plot.x.end : plot.y.end, most) << chart.name;
  }
  EXPECT_LE(throughput_chart(shown_arms(set)).plots[0].y.end, 4800) << "a median has no whisker";
  EXPECT_THAT(svg_element(throughput_chart(shown_arms(set_of_report(full_report())))),
              Not(HasSubstr("cut")));
}

// One VM with two GPUs, and two with one each.
TEST(Chart, ArmsOfEqualRanksAreOnCurvesOfTheirOwn) {
  Report report = made_up_report({{"1x1x1", {100}}, {"1x1x2", {190}}, {"2*(1x1x1)", {190}}});
  for (size_t i = 1; i < 3; ++i) report.arms[i].runs[0].world_size = 2;
  const RunSet set = set_of_report(report);
  const Chart speedup = speedup_chart(shown_arms(set));
  EXPECT_EQ(speedup.title, "Speedup over 1x1x1");
  EXPECT_THAT(csv_of(speedup), HasSubstr("\"1x1x1 to 1x1x2\",measured,point,2,1.9,,,\"1x1x2\"\n"));
  EXPECT_THAT(csv_of(speedup),
              HasSubstr("\"1x1x1 to 2*(1x1x1)\",measured,point,2,1.9,,,\"2*(1x1x1)\"\n"));
  EXPECT_EQ(speedup.table.rows[0][2], "reference");
  EXPECT_EQ(speedup.table.rows[0][3], "-") << "nothing that was measured";
  EXPECT_EQ(speedup.table.rows.size(), 3U) << "the reference of both once";
}

// 1, 2, 4 and 8 ranks at two batches.
TEST(Chart, EightArmsMakeTwoCurves) {
  std::vector<std::pair<std::string, std::vector<double>>> arms;
  for (const char* batch : {"64", "256"}) {
    for (const char* ranks : {"1 GPU", "2 GPUs", "4 GPUs", "8 GPUs"}) {
      arms.push_back({std::string(ranks) + ", batch " + batch, {1000.0 * (ranks[0] - '0')}});
    }
  }
  Report report = made_up_report(arms);
  for (Arm& arm : report.arms) {
    arm.runs[0].world_size = arm.name[0] - '0';
    arm.grid =
        GridPoint{.layout = "", .settings = {{"batch", arm.name.substr(arm.name.rfind(' ') + 1)}}};
  }
  const RunSet set = set_of_report(report);
  for (const Chart& chart : {throughput_chart(shown_arms(set)), speedup_chart(shown_arms(set)),
                             efficiency_chart(shown_arms(set))}) {
    const std::vector<Series>& series = chart.plots[0].series;
    EXPECT_EQ(std::ranges::count(series, Look::joined, &Series::look), 2) << chart.name;
    EXPECT_THAT(texts_of(chart), testing::Contains("1 GPU to 8 GPUs, batch 64"));
    EXPECT_TRUE(chart.plots[0].x.log2);
  }
}

TEST(Chart, BarsTellTheirValuesAsTheTableDoes) {
  const Chart chart = throughput_chart(shown_arms(bars_set()));
  EXPECT_THAT(texts_of(chart), testing::IsSupersetOf({"1005", "501.0"}));
  EXPECT_THAT(chart.table.rows[1][1], testing::StartsWith("501.0 ["));
}

// A label of so many digits that eight of them would run together.
TEST(Chart, LabelsOfTicksLeaveEachOtherRoom) {
  const Chart chart = throughput_chart(
      shown_arms(made_up_set({{"1x1", {250'000, 250'100}}, {"other", {180'000, 180'300}}})));
  std::vector<std::string> ticks;
  for (const std::string& text : texts_of(chart)) {
    if (text.ends_with("0000")) ticks.push_back(text);
  }
  EXPECT_GE(ticks.size(), 3U);
  EXPECT_LE(ticks.size(), 6U);
}

}  // namespace
}  // namespace nearmetal
