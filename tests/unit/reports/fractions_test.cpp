#include "reports/sharing/fractions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <sstream>

#include "reports/compare/run_set.h"
#include "reports/compare/scaling.h"
#include "reports/formats/charts/charts.h"
#include "reports/formats/headline.h"
#include "reports/formats/page.h"
#include "reports/formats/report_text.h"
#include "reports/json/json.h"
#include "reports/merge/merge.h"
#include "reports/sharing/fraction_tables.h"
#include "tests/support/made_up_runs.h"
#include "tests/support/made_up_shares.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(Fractions, RatiosAreThoseOfTheSpeedsOfAllJobs) {
  const std::vector<FractionPoint> points = points_of(four_jobs());
  ASSERT_EQ(points.size(), 5);
  const FractionPoint &alone = points[0], &serial = points[1], &slices = points[2],
                      &mps = points[3];
  const double of_mps = std::sqrt(1100. * 1122), of_serial = std::sqrt(990. * 1000);
  const double of_slices = std::sqrt(900. * 910), of_alone = std::sqrt(1000. * 1010);
  EXPECT_DOUBLE_EQ(mps.throughput->value, of_mps);
  EXPECT_DOUBLE_EQ(mps.of_serial->value, of_mps / of_serial);
  EXPECT_DOUBLE_EQ(mps.of_timeslice->value, of_mps / of_slices);
  EXPECT_LT(mps.of_serial->interval->lower, of_mps / of_serial);
  EXPECT_GT(mps.of_serial->interval->upper, of_mps / of_serial);
  EXPECT_DOUBLE_EQ(mps.slowdown->value, 4 * of_alone / of_mps);
  EXPECT_DOUBLE_EQ(mps.interference->value, 4 * std::sqrt(400. * 404) / of_mps);
  EXPECT_DOUBLE_EQ(slices.interference->value, 4 * of_alone / of_slices);
  EXPECT_DOUBLE_EQ(serial.slowdown->value, of_alone / of_serial) << "in turn, each has all of it";
  EXPECT_EQ(serial.of_serial.reason, "it is the reference");
  EXPECT_EQ(alone.slowdown.reason, "it is the reference");
  EXPECT_DOUBLE_EQ(*mps.p99_inflation, 4);
  EXPECT_DOUBLE_EQ(*mps.samples_per_joule, of_mps / 500);
  EXPECT_DOUBLE_EQ(*mps.power_watts, 500);
  EXPECT_DOUBLE_EQ(mps.job_speeds->lower, of_mps / 4);
  EXPECT_EQ(alone.job_speeds.reason, "one job");
  EXPECT_DOUBLE_EQ(*mps.memory_bytes, 3e9);
}

TEST(Fractions, OneRunHasNoIntervalAndFailedRunsDoNotCount) {
  Report report = four_jobs();
  report.arms[3].runs[1].status = Status::failed;
  const FractionPoint mps = points_of(report)[3];
  EXPECT_EQ(mps.runs, 1);
  EXPECT_DOUBLE_EQ(mps.throughput->value, 1100);
  EXPECT_FALSE(mps.of_serial->interval);
  EXPECT_NEAR(mps.fairness->value, 1, 1e-12);
  EXPECT_FALSE(mps.fairness->interval);
  std::swap(report.arms[3].runs[0], report.arms[3].runs[1]);
  report.arms[3].runs[0].jobs.clear();
  EXPECT_TRUE(points_of(report)[3].slowdown) << "the first launch failed";
  std::swap(report.arms[3].runs[0], report.arms[3].runs[1]);
  report.arms[3].runs[0].status = Status::failed;
  EXPECT_EQ(points_of(report).size(), 4);
}

TEST(Fractions, ArmsOfOtherWorkAreNoReference) {
  Report report = four_jobs();
  report.arms[0].config = report.invocation.config;
  report.arms[0].config->batch = 7;
  const FractionPoint mps = points_of(report)[3];
  EXPECT_FALSE(mps.slowdown);
  EXPECT_TRUE(mps.of_serial);
}

TEST(Fractions, TheBestBatchOfEachWayIsComparedWithTheBestOfOthers) {
  Report report = four_jobs();
  RunSet set;
  add_runs(set, report, "made up");
  EXPECT_TRUE(with_best_batches(set).arms.empty()) << "one batch";
  for (const Arm& arm : four_jobs().arms) {
    Arm& larger = report.arms.emplace_back(arm);
    larger.name += ", larger";
    larger.config = report.invocation.config;
    larger.config->batch = 7;
    const double factor = larger.share->mode == SharingMode::mps ? 0.5 : 2;
    for (nearmetal::Run& run : larger.runs) *run.throughput.value *= factor;
  }
  set = {};
  add_runs(set, report, "made up");
  EXPECT_EQ(fractions_of(set).size(), 10);
  const std::vector<FractionPoint> best = fractions_of(with_best_batches(set), true);
  ASSERT_EQ(best.size(), 5);
  EXPECT_EQ(best[1].arm, "serial, larger");
  EXPECT_EQ(best[3].arm, "mps");
  EXPECT_NE(best[3].given, "-") << "of its GPU";
  EXPECT_NEAR(best[3].of_serial->value, std::sqrt(1100. * 1122) / (2 * std::sqrt(990. * 1000)),
              1e-9);
  EXPECT_THAT(headlines(set).at(0), HasSubstr("'slices, larger', has 0.9")) << "not mps, 1.1";
  EXPECT_EQ(fraction_tables(set).size(), 4);
}

TEST(Fractions, OnCpusNoTextSaysGpu) {
  Report report = four_jobs();
  for (Arm& arm : report.arms) {
    for (nearmetal::Run& run : arm.runs) run.device = Device::cpu;
  }
  RunSet set;
  add_runs(set, report, "made up");
  std::string text;
  for (const TitledTable& shown : fraction_tables(set)) text += shown.title + shown.legend;
  for (const Chart& chart : fraction_charts(set))
    text += chart.caption + (chart.missing.empty() ? svg_element(chart) : "");
  EXPECT_THAT(text, Not(HasSubstr("GPU")));
  EXPECT_THAT(text, HasSubstr("Jobs that share CPUs"));
  set.arms.front().runs.front().run.device = Device::cuda;
  EXPECT_EQ(fraction_tables(set).front().title, "Jobs that share a GPU");
}

std::string headline_of(const Report& report) {
  RunSet set;
  add_runs(set, report, "made up");
  return headlines(set).at(0);
}

TEST(Fractions, AWayThatLosesIsNotPraised) {
  Report report = four_jobs();
  EXPECT_THAT(headline_of(report), StartsWith("The best way to share is 'mps': 1."));
  report.arms.erase(report.arms.begin() + 3);
  EXPECT_THAT(headline_of(report),
              StartsWith("No way to share gains anything; the best, 'slices', has 0.9"));
}

TEST(Fractions, TheBestOfSeveralWaysHasAnIntervalOfAllTogether) {
  const Report report = four_jobs();
  const Estimate alone = *points_of(report)[3].of_serial;
  const auto together = fractions_of(set_of(report), false, 0.975)[3].of_serial->interval;
  EXPECT_LT(together->lower, alone.interval->lower);
  EXPECT_THAT(headline_of(report), HasSubstr(estimate_text({alone.value, together})));
  EXPECT_THAT(headline_of(report), testing::EndsWith(", by an interval of all 2 ways together"));
}

TEST(Fractions, AWayWhoseGainMayBeNoneIsNotPraised) {
  Report report = four_jobs();
  Arm& mps = report.arms[3];
  *mps.runs[0].throughput.value *= 1.1;
  const std::string not_shown =
      "No way to share is shown to gain anything; the best, 'mps', has 1.";
  EXPECT_THAT(headline_of(report), StartsWith(not_shown)) << "its runs scatter";
  for (Arm& arm : report.arms) arm.runs.resize(1);
  EXPECT_THAT(headline_of(report), StartsWith(not_shown)) << "one run each";
}

TEST(Fractions, TheBestBatchIsThatOfTheSameWork) {
  Report report = four_jobs();
  for (const int64_t batch : {7, 9}) {
    Arm& other = report.arms.emplace_back(four_jobs().arms[0]);
    other.name = "alone, resnet18, " + std::to_string(batch);
    other.config = report.invocation.config;
    other.config->model = "resnet18";
    other.config->batch = batch;
    for (nearmetal::Run& run : other.runs) *run.throughput.value *= batch;
  }
  RunSet set;
  add_runs(set, report, "made up");
  const RunSet best = with_best_batches(set);
  ASSERT_EQ(best.arms.size(), 6);
  EXPECT_EQ(best.arms[0].name, "alone");
  EXPECT_EQ(best.arms[5].name, "alone, resnet18, 9");
}

TEST(Fractions, JobsOfOtherNumbersOfRanksAreNoReference) {
  Report report = four_jobs();
  for (nearmetal::Run& run : report.arms[3].runs) {
    for (ConcurrentJob& job : run.jobs) job.ranks = 2;
  }
  const FractionPoint mps = points_of(report)[3];
  EXPECT_FALSE(mps.slowdown);
  EXPECT_FALSE(mps.interference);
  EXPECT_FALSE(mps.of_serial);
}

TEST(Fractions, EachOfUnequalSharesIsComparedWithAJobAloneOnIt) {
  Report report = four_jobs();
  report.arms[3].share->threads_percent = {40, 25, 25, 25};
  EXPECT_FALSE(points_of(report)[3].interference) << "none was alone on 40 %";
  report.arms.push_back(shared_arm("more alone", {SharingMode::mps, 1, {40}, {}}, {600, 606}));
  const Maybe<Estimate> found = points_of(report)[3].interference;
  const double of_job = std::sqrt(1100. * 1122) / 4;
  const double alone =
      std::pow(std::sqrt(400. * 404), 0.75) * std::pow(std::sqrt(600. * 606), 0.25);
  EXPECT_NEAR(found->value, alone / of_job, 1e-9);
  EXPECT_LT(found->interval->lower, found->value);
  report.arms[3].runs[0].jobs[0].throughput *= 2;
  report.arms[3].runs[1].jobs[0].throughput *= 2;
  EXPECT_NEAR(points_of(report)[3].worst_of_best->value, 0.5, 1e-12);
  EXPECT_DOUBLE_EQ(points_of(report)[3].job_speeds->upper, 2 * of_job);
}

// The extremes of each run would be 0.98 of one another, whichever job is the slower.
TEST(Fractions, TheWorstJobIsTheOneThatIsSlowerOverTheRuns) {
  Report report = four_jobs();
  report.arms[3].runs[0].jobs[0].throughput *= 0.98;
  report.arms[3].runs[1].jobs[1].throughput *= 0.98;
  const FractionPoint equal = points_of(report)[3];
  EXPECT_NEAR(equal.worst_of_best->value, std::sqrt(0.98), 1e-12);
  EXPECT_NEAR(equal.job_speeds->lower / equal.job_speeds->upper, std::sqrt(0.98), 1e-12);
  report.arms[3].runs[1].jobs[0].throughput *= 0.97;
  const FractionPoint one = points_of(report)[3];
  EXPECT_NEAR(one.worst_of_best->value, std::sqrt(0.98 * 0.97), 1e-9);
  ASSERT_TRUE(one.worst_of_best->interval && one.fairness->interval);
  EXPECT_LT(one.worst_of_best->interval->lower, 0.95);
}

TEST(Fractions, RunsOfUnlikeNumbersOfJobsHaveNoFairness) {
  Report report = four_jobs();
  report.arms[3].runs[1].jobs.pop_back();
  EXPECT_EQ(points_of(report)[3].fairness.reason, "its runs have unlike numbers of jobs");
}

TEST(Fractions, AnArmWithNeighboursIsComparedWithUndisturbedArms) {
  Report report = four_jobs();
  Arm beside = shared_arm(
      "beside", {SharingMode::timeslice, 1, {}, {}, {"copy", "compute", "copy"}}, {250, 260});
  for (nearmetal::Run& run : beside.runs) {
    run.neighbours = {{"copy", 100, 1e12, 0}, {"compute", 9, 0, 4e14}, {"copy", 200, 2e12, 0}};
  }
  report.arms.insert(report.arms.begin(), beside);
  const std::vector<FractionPoint> points = points_of(report);
  EXPECT_NEAR(points[0].slowdown->value, std::sqrt(1000. * 1010) / std::sqrt(250. * 260), 1e-9);
  EXPECT_EQ(points[0].of_serial.reason, "its neighbours train nothing");
  EXPECT_EQ(points[0].samples_per_joule.reason, "its neighbours take power, too");
  EXPECT_EQ(points[1].of_timeslice.reason, "no arm of as many jobs is so");
  EXPECT_EQ(to_json(report_from_json(to_json(report))), to_json(report));
  RunSet set;
  add_runs(set, report, "made up");
  const std::vector<TitledTable> tables = fraction_tables(set);
  ASSERT_EQ(tables.size(), 3);
  EXPECT_THAT(tables[2].table.rows,
              testing::ElementsAre(testing::ElementsAre("beside", "1", "compute", "400.0 TFLOP/s"),
                                   testing::ElementsAre("beside", "2", "copy", "3000 GB/s")));
}

TEST(Fractions, AreInTheReportsTablesAndChartsWithWhatIsUnsupported) {
  Report report = four_jobs();
  Arm& missing = report.arms.emplace_back();
  missing.name = "4 jobs, MIG";
  missing.unsupported = "MIG is off";
  RunSet set;
  add_runs(set, report, "made up");
  EXPECT_EQ(set.arms.size(), 5) << "what could not be had is no arm to compare";
  std::ostringstream out;
  print_markdown(out, set);
  EXPECT_THAT(out.str(), HasSubstr("4 jobs, MIG: unsupported: MIG is off"));
  EXPECT_THAT(out.str(), HasSubstr("1.117 ["));
  EXPECT_THAT(out.str(), HasSubstr("**The best way to share is '"));
  const Page page = report_page({set});
  EXPECT_EQ(page.tables.at(0).table.rows.size(), 5);
  EXPECT_EQ(page.charts.at(0).name, "sharing");
  EXPECT_EQ(page.charts.at(0).table.rows.size(), 3) << "serial, slices and mps";
  EXPECT_EQ(page.charts.at(1).name, "slowdown");
  EXPECT_THAT(csv_of(page.charts.at(1)), HasSubstr("mps alone"));
  std::vector<std::string> names;
  for (const Chart& chart : page.charts) names.push_back(chart.missing.empty() ? chart.name : "-");
  names.resize(3);
  EXPECT_THAT(names, testing::ElementsAre("sharing", "slowdown", "throughput"));
}

TEST(Fractions, AreInTheReportAndNoScaling) {
  Report report = four_jobs();
  report.arms[0].unsupported = "for the test";
  const std::regex added(R"(,\s*"first_step": null,\s*"steps": null)");
  const std::string text = std::regex_replace(to_json(report), added, "");
  EXPECT_THAT(text, Not(HasSubstr("\"first_step\": null"))) << "as version 1.5 wrote it";
  EXPECT_EQ(to_json(report_from_json(text)), to_json(report));
  RunSet set;
  add_runs(set, report, "made up");
  EXPECT_TRUE(scaling_of(set).empty()) << "more jobs on one GPU are not more GPUs";
  const auto key_of = [&](size_t arm) {
    return comparable_key(report, report.arms[arm], report.arms[arm].runs[0]);
  };
  EXPECT_EQ(key_differences(key_of(3), key_of(4)).front().name, "share");
}

TEST(MergeSerialJobs, SumsImagesAndSeconds) {
  std::vector<Report> jobs(2, sample_report());
  for (size_t i = 0; i < jobs.size(); ++i) {
    nearmetal::Run& run = jobs[i].arms[0].runs[0];
    run.window.value->samples = 1000;
    run.window.value->seconds = i == 0 ? 1 : 4;
    run.ranks[0].window_start_unix_seconds = i == 0 ? 100 : 130;
  }
  const nearmetal::Run run = merge_jobs(jobs, false, nearmetal::JobOrder::in_turn).first;
  EXPECT_DOUBLE_EQ(*run.throughput, 400) << "2000 images in 5 s";
  ASSERT_EQ(run.jobs.size(), 2);
  EXPECT_DOUBLE_EQ(run.jobs[1].throughput, 250);
  EXPECT_DOUBLE_EQ(run.jobs[1].start_seconds, 30);
  EXPECT_EQ(run.jobs[1].first_step, jobs[1].arms[0].runs[0].window->first_step);
  EXPECT_EQ(run.jobs[1].steps, jobs[1].arms[0].runs[0].window->steps);
  EXPECT_EQ(run.ranks.size(), 2 * jobs[0].arms[0].runs[0].ranks.size());
}

}  // namespace
}  // namespace nearmetal
