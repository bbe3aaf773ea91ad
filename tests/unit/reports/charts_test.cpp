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

TEST(Chart, EachHasDataScriptCaptionAndTable) {
  for (const Chart& chart : charts_of({set_of_report(full_report())})) {
    EXPECT_EQ(chart.missing, "") << chart.name;
    EXPECT_GT(lines_of(chart.csv), 1U) << chart.name;
    EXPECT_THAT(chart.script, HasSubstr("$data")) << chart.name;
    EXPECT_THAT(chart.script, HasSubstr("range [0:")) << chart.name;
    EXPECT_FALSE(chart.table.rows.empty()) << chart.name;
    const bool of_one_run = chart.name == "profile";
    EXPECT_THAT(chart.caption, HasSubstr(of_one_run ? "One run" : "n = ")) << chart.name;
    EXPECT_THAT(script_with_files(chart), HasSubstr("'" + chart.name + ".csv'"));
    EXPECT_THAT(script_with_files(chart), Not(HasSubstr("$data")));
  }
}

TEST(Chart, SaysWhatIsMissing) {
  Report report = made_up_report({{"1x1", {1000}}});
  report.arms[0].runs[0].status = Status::partial;
  for (const Chart& chart : charts_of({set_of_report(report)})) {
    EXPECT_NE(chart.missing, "") << chart.name;
    EXPECT_EQ(chart.script, "") << chart.name;
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
  EXPECT_THAT(chart.csv, HasSubstr("1,\"1x1\",1,forward,0,1,2\n")) << "on one clock";
  EXPECT_THAT(chart.csv, HasSubstr("0,\"1x1\",0,backward,0,4,6\n"));
  EXPECT_THAT(chart.script, HasSubstr("\"1x1, stage 1\" 1"));
  EXPECT_EQ(charts_of({set}).back().name, "pipeline");
  EXPECT_NE(pipeline_chart(shown_arms(RunSet{})).missing, "");
}

TEST(Chart, BarsHoldMeansIntervalsAndRuns) {
  const Chart chart = throughput_chart(shown_arms(set_of_report(full_report())));
  EXPECT_THAT(chart.csv, HasSubstr("\"1x1\",0,measured,run,1010,1010,1010,\n"));
  EXPECT_THAT(chart.csv, HasSubstr("\"1x1\",0,measured,bar,1004.98"));
  EXPECT_THAT(chart.table.rows[0][1], HasSubstr("1005 ["));
}

TEST(Chart, KindsLookDifferent) {
  Report report = full_report();
  report.arms[1].kind = Kind::emulated;
  const RunSet set = set_of_report(report);
  const std::string script = throughput_chart(shown_arms(set)).script;
  EXPECT_THAT(script, HasSubstr("eq 'measured'"));
  EXPECT_THAT(script, HasSubstr("eq 'emulated'"));
  EXPECT_THAT(script, HasSubstr("fs solid"));
  EXPECT_THAT(script, HasSubstr("fs pattern"));
  EXPECT_THAT(step_strip_chart(shown_arms(set)).script, HasSubstr("\"1x2, emulated\""));
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
  EXPECT_THAT(chart.csv, HasSubstr("0,7778,400\n"));
  EXPECT_THAT(chart.csv, HasSubstr("0,13334,20\n"));
  EXPECT_LE(lines_of(chart.csv), 1001U);
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
  EXPECT_THAT(step_strip_chart(shown_arms(set)).csv, HasSubstr("0,1,300\n0,2,300\n"));
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

TEST(Chart, StripsHaveATickAboveZero) {
  for (const double slowest : {0.11, 0.21, 0.42, 0.51, 0.99}) {
    Report report = made_up_report({{"1x1", {1000}}});
    report.arms[0].runs[0].ranks[0].step_seconds = {slowest, 0.1, 0.1, slowest};
    const RunSet set = set_of_report(report);
    const std::string script = step_strip_chart(shown_arms(set)).script;
    const double tick = std::stod(script.substr(script.find("set ytics ") + 10));
    EXPECT_LE(tick, 1e3 * slowest);
    EXPECT_GE(tick, 1e3 * slowest / 3);
  }
}

TEST(Chart, HoldsNoCommandOfAName) {
  Report report = full_report();
  report.arms[0].name = "`touch x`\"\nset output 'y'\nEOD $(z) @w";
  for (const Chart& chart : charts_of({set_of_report(report)})) {
    const std::string script = script_with_data(chart);
    EXPECT_THAT(script, Not(HasSubstr("touch x`"))) << chart.name;
    EXPECT_THAT(script, Not(HasSubstr("\nset output"))) << chart.name;
    EXPECT_THAT(script, Not(HasSubstr("@w"))) << chart.name;
    EXPECT_THAT(script, Not(HasSubstr("\nEOD "))) << chart.name;
  }
  EXPECT_EQ(quoted_label(std::string(60, 'x')).size(), 50U);
}

TEST(Chart, LongNamesTakeTwoLinesAndLeaveThePlotItsWidth) {
  EXPECT_THAT(row_axis({"4 jobs, MPS 25 percent, batch 128", "alone"}),
              HasSubstr(R"(("4 jobs, MPS 25 percent,\nbatch 128" 0, "alone" 1))"));
  const std::string long_word(40, 'x');
  EXPECT_THAT(row_axis({long_word}),
              HasSubstr('"' + long_word.substr(16) + "\\n" + long_word.substr(24) + '"'));
  EXPECT_THAT(row_axis({"a name of so many words that two lines do not hold it all"}),
              HasSubstr("a name of so many words\\nthat two lines do not ..\""));
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
  EXPECT_EQ(most_ticks(100), 6);
  EXPECT_EQ(most_ticks(250'000), 4);
  EXPECT_EQ(most_ticks(25'000'000), 3);
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

double number_after(const std::string& script, const std::string& setting) {
  return std::stod(script.substr(script.find(setting) + setting.size()));
}

// The place, from above, of the first element with this mark.
double position_of(const Chart& chart, const std::string& mark) {
  const size_t line = chart.csv.rfind('\n', chart.csv.find("," + mark + ","));
  return std::stod(chart.csv.substr(line + 1));
}

TEST(Chart, WritesTheValueAboveAWhiskerThatIsCut) {
  const Chart cut = throughput_chart(shown_arms(hardly_known_set()));
  EXPECT_LT(position_of(cut, "text"), position_of(cut, "bar"));
  const Chart whole = throughput_chart(shown_arms(set_of_report(full_report())));
  EXPECT_EQ(position_of(whole, "text"), position_of(whole, "bar"));
}

TEST(Chart, CutsWhiskersThatWouldHideTheirPoints) {
  const RunSet set = hardly_known_set();
  for (const auto& [chart, range, tics] :
       {std::tuple(speedup_chart(shown_arms(set)), "set yrange [0:", "set ytics "),
        std::tuple(efficiency_chart(shown_arms(set)), "set xrange [0:", "set xtics "),
        std::tuple(throughput_chart(shown_arms(set)), "set xrange [0:", "set xtics ")}) {
    EXPECT_THAT(chart.script, HasSubstr("whiskers are cut")) << chart.name;
    EXPECT_THAT(chart.script, HasSubstr("drawn(column('upper'))")) << chart.name;
    const double end = number_after(chart.script, range);
    EXPECT_LE(end, chart.name == "throughput" ? 4800 : 240) << chart.name;
    EXPECT_GE(number_after(chart.script, tics), end / 8) << chart.name;
  }
  EXPECT_THAT(throughput_chart(shown_arms(set_of_report(full_report()))).script,
              Not(HasSubstr("cut")));
}

TEST(Chart, SpeedupsOfAFewRanksHaveAFewTicks) {
  Report report = full_report();
  for (nearmetal::Run& run : report.arms[1].runs) *run.throughput.value *= 100;
  const RunSet set = set_of_report(report);
  EXPECT_GE(number_after(speedup_chart(shown_arms(set)).script, "set ytics "), 190 / 8.0);
}

// One VM with two GPUs, and two with one each.
TEST(Chart, ArmsOfEqualRanksAreNamedAndDrawnSideBySide) {
  Report report = made_up_report({{"1x1x1", {100}}, {"1x1x2", {190}}, {"2*(1x1x1)", {190}}});
  for (size_t i = 1; i < 3; ++i) report.arms[i].runs[0].world_size = 2;
  const RunSet set = set_of_report(report);
  const Chart speedup = speedup_chart(shown_arms(set));
  EXPECT_THAT(speedup.csv, HasSubstr("\"1x1x2\",measured,weak,\"1x1x1\",2,-0.5,1.9,"));
  EXPECT_THAT(speedup.csv, HasSubstr("\"2*(1x1x1)\",measured,weak,\"1x1x1\",2,0.5,1.9,"));
  EXPECT_THAT(speedup.script, HasSubstr("title \"1x1x1: reference\""));
  EXPECT_THAT(speedup.script, HasSubstr("title \"2*(1x1x1), against 1x1x1\""));
  EXPECT_EQ(speedup.table.rows[0][2], "reference");
  EXPECT_EQ(speedup.table.rows[0][3], "-") << "nothing that was measured";
  EXPECT_THAT(efficiency_chart(shown_arms(set)).csv, HasSubstr("\"1x1x1, reference\""));
}

TEST(Chart, BarsTellTheirValues) {
  const Chart chart = throughput_chart(shown_arms(made_up_set({{"1x1", {1000, 1010}}})));
  EXPECT_THAT(chart.csv, HasSubstr(",text,"));
  EXPECT_THAT(chart.csv, HasSubstr(",1005\n"));
  EXPECT_THAT(chart.script, HasSubstr("(strcol('text')) with labels left"));
}

}  // namespace
}  // namespace nearmetal
