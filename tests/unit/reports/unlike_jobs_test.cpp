#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "base/errors.h"
#include "reports/compare/compare.h"
#include "reports/document/metric.h"
#include "reports/formats/page.h"
#include "reports/formats/report_text.h"
#include "reports/json/consistency.h"
#include "reports/json/json.h"
#include "reports/merge/merge.h"
#include "reports/sharing/fraction_tables.h"
#include "tests/support/made_up_runs.h"
#include "tests/support/made_up_shares.h"
#include "tests/support/refusal.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RunConfig training(const std::string& model) {
  RunConfig config = sample_report().invocation.config;
  config.model = model;
  return config;
}

RunConfig forward(const std::string& model) {
  RunConfig config = training(model);
  config.forward_only = true;
  return config;
}

Arm alone(const std::string& name, const RunConfig& config, const std::vector<double>& speeds) {
  Arm arm = shared_arm(name, {SharingMode::alone, 1, {}, {}}, speeds);
  arm.config = config;
  return arm;
}

// One training and one forward pass with these speeds in each run.
Arm both(const std::string& name, SharingMode mode,
         const std::vector<std::pair<double, double>>& speeds) {
  Arm arm = shared_arm(name, {mode, 2, {}, {}}, std::vector<double>(speeds.size(), 1));
  arm.workloads = {training("resnet50"), forward("resnet18")};
  arm.config = arm.workloads[0];
  for (size_t i = 0; i < speeds.size(); ++i) {
    nearmetal::Run& run = arm.runs[i];
    run.throughput = run.flops_per_second = run.share_of_peak = Unknown{unlike_work};
    run.jain_fairness.reset();
    run.jobs = {{1, speeds[i].first, 0, 2, 2, SampleUnit::image, 2e10},
                {1, speeds[i].second, 0, 2, 2, SampleUnit::image, 1e9}};
    run.ranks.push_back(run.ranks[0]);
    run.ranks[1].rank = 1;
    run.ranks[1].step_time.value->p99_seconds = 0.05;
  }
  return arm;
}

Report two_models() {
  Report report = sample_report();
  report.arms = {alone("training alone", training("resnet50"), {1000, 1010}),
                 alone("forward alone", forward("resnet18"), {8000, 8080}),
                 both("serial", SharingMode::serial, {{990, 8000}, {1000, 7990}}),
                 both("slices", SharingMode::timeslice, {{600, 4000}, {606, 4040}})};
  for (Arm& arm : report.arms) {
    for (Run& run : arm.runs) {
      run.window.value->steps = 100;
      for (ConcurrentJob& job : run.jobs) job.steps = 100;
    }
  }
  return report;
}

double root(double a, double b) { return std::sqrt(a * b); }

TEST(UnlikeJobs, AreArmsByThemselvesAndTheKeyHoldsTheirList) {
  const RunSet set = set_of(two_models());
  std::vector<std::string> names;
  for (const RunArm& arm : set.arms) names.push_back(arm.name);
  EXPECT_THAT(names, ElementsAre("training alone", "forward alone", "serial, job 1",
                                 "serial, job 2", "slices, job 1", "slices, job 2"));
  const SetRun& second = set.arms[5].runs[1];
  EXPECT_DOUBLE_EQ(*second.run.throughput, 4040);
  EXPECT_DOUBLE_EQ(*second.run.flops_per_second, 4040 * 1e9);
  EXPECT_EQ(second.run.world_size, 1);
  ASSERT_EQ(second.run.ranks.size(), 1);
  EXPECT_DOUBLE_EQ(second.run.ranks[0].step_time->p99_seconds, 0.05);
  EXPECT_THAT(second.key, testing::Contains(KeyField{"model", "resnet50 + resnet18"}));
  EXPECT_THAT(second.key, testing::Contains(KeyField{"forward_only", "no + yes"}));
  EXPECT_THAT(second.key, testing::Contains(KeyField{"precision", "fp16"})) << "of both";
  EXPECT_THAT(second.own_key, testing::Contains(KeyField{"model", "resnet18"}));
  ASSERT_EQ(set.wholes.size(), 2);
  EXPECT_THAT(key_differences(set.arms[4].runs[0].key, second.key),
              ElementsAre(testing::Field(&KeyDifference::name, "job")));
}

TEST(UnlikeJobs, AreComparedWithThemselvesAlone) {
  const std::vector<FractionPoint> points = points_of(two_models());
  ASSERT_EQ(points.size(), 4);
  const FractionPoint &serial = points[2], &slices = points[3];
  const double training_alone = root(1000, 1010), forward_alone = root(8000, 8080);
  const double first = 600 / training_alone + 4000 / forward_alone;
  EXPECT_DOUBLE_EQ(slices.weighted_speedup->value, root(first, 1.01 * first));
  EXPECT_LT(slices.weighted_speedup->interval->lower, slices.weighted_speedup->value);
  EXPECT_GT(slices.weighted_speedup->interval->upper, slices.weighted_speedup->value);
  EXPECT_NEAR(serial.weighted_speedup->value, 0.99, 0.01) << "each has half of the time";
  EXPECT_DOUBLE_EQ(slices.of_serial->value,
                   slices.weighted_speedup->value / serial.weighted_speedup->value);
  EXPECT_TRUE(slices.of_serial->interval);
  EXPECT_FALSE(slices.throughput);
  EXPECT_EQ(slices.throughput.reason, unlike_work);
  EXPECT_EQ(slices.samples_per_joule.reason, unlike_work);
  EXPECT_EQ(slices.job_speeds.reason, unlike_work);
  ASSERT_EQ(slices.unlike_jobs.size(), 2);
  EXPECT_EQ(slices.unlike_jobs[1].work, "resnet18 forward, fp16, batch 256");
  EXPECT_DOUBLE_EQ(slices.unlike_jobs[1].throughput->value, root(4000, 4040));
  EXPECT_DOUBLE_EQ(*slices.unlike_jobs[1].alone, forward_alone);
  EXPECT_DOUBLE_EQ(slices.unlike_jobs[0].of_alone->value, root(600, 606) / training_alone);
  const double progress[] = {600 / training_alone, 4000 / forward_alone};
  EXPECT_NEAR(slices.worst_of_best->value, progress[1] / progress[0], 1e-9);
  EXPECT_NEAR(slices.fairness->value,
              std::pow(progress[0] + progress[1], 2) /
                  (2 * (progress[0] * progress[0] + progress[1] * progress[1])),
              1e-9);
  EXPECT_NEAR(slices.slowdown->value,
              root(training_alone, forward_alone) / root(root(600, 606), root(4000, 4040)), 1e-9);
  EXPECT_DOUBLE_EQ(*slices.p99_inflation, 0.05 / 0.01) << "of the worst job";
}

TEST(UnlikeJobs, WithoutAJobAloneThereIsNoSum) {
  Report report = two_models();
  report.arms.erase(report.arms.begin() + 1);
  const FractionPoint slices = points_of(report).back();
  const std::string missing = "no arm did this alone: resnet18 forward, fp16, batch 256";
  EXPECT_EQ(slices.weighted_speedup.reason, missing);
  EXPECT_EQ(slices.of_serial.reason, missing);
  EXPECT_TRUE(slices.unlike_jobs[0].of_alone);
  EXPECT_EQ(slices.unlike_jobs[1].of_alone.reason, missing);
  EXPECT_EQ(slices.worst_of_best.reason, missing) << "rates of unlike work do not compare";
  EXPECT_EQ(slices.fairness.reason, missing);
  EXPECT_EQ(fraction_tables(set_of(report)).at(1).legend, missing);
}

TEST(UnlikeJobs, OfOtherBatchesHaveNoBestBatch) {
  Report report = two_models();
  for (Arm* arm : {&report.arms[2], &report.arms[3]}) arm->workloads[1].batch = 7;
  report.arms[1].config->batch = 7;
  EXPECT_TRUE(with_best_batches(set_of(report)).arms.empty());
}

TEST(UnlikeJobs, OfOtherWorkAreNotComparable) {
  const RunSet base = set_of(two_models());
  Report other = two_models();
  other.arms[3].workloads[1].batch = 7;
  const RunSet next = set_of(other);
  const Comparison same = compare(base, set_of(two_models()), {});
  EXPECT_EQ(same.rows.size(), 6);
  EXPECT_THAT(same.key_differences, testing::IsEmpty());
  for (const ComparisonRow& row : compare(base, next, {}).rows) {
    EXPECT_EQ(row.verdict == Verdict::not_comparable, row.arm.starts_with("slices")) << row.arm;
  }
  const std::vector<KeyDifference> found = compare(base, next, {}).key_differences;
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].base, "256");
  EXPECT_EQ(found[0].other, "256 + 7");
}

TEST(UnlikeJobs, OfTheOnlyArmsAreComparedInTheirOrder) {
  RunSet base, next;
  Report serial = two_models(), slices = two_models();
  keep_only_arm(serial, "serial", "made up");
  keep_only_arm(slices, "slices", "made up");
  add_runs(base, serial, "made up");
  add_runs(next, slices, "made up");
  CompareOptions options;
  options.allow_differ = {"share"};
  const Comparison comparison = compare(base, next, options);
  ASSERT_EQ(comparison.rows.size(), 2);
  for (const ComparisonRow& row : comparison.rows) {
    const bool first = row.arm == "serial, job 1 | slices, job 1";
    EXPECT_TRUE(first || row.arm == "serial, job 2 | slices, job 2") << row.arm;
    EXPECT_EQ(row.verdict, Verdict::slower) << row.arm;
  }
}

TEST(UnlikeJobs, OfARunThatFailedAreKnownToHaveFailed) {
  Report report = two_models();
  nearmetal::Run& failed = report.arms[3].runs[0];
  fail_run("job 2: out of memory", failed);
  failed.jobs.clear();
  failed.ranks.clear();
  EXPECT_EQ(set_of(report).arms[4].runs[0].run.status, Status::failed);
  EXPECT_EQ(points_of(report)[3].runs, 1);
  EXPECT_FALSE(points_of(report)[3].weighted_speedup->interval);
}

TEST(UnlikeJobs, WarningsAreThoseOfTheJob) {
  nearmetal::Run run = both("", SharingMode::timeslice, {{1, 2}}).runs[0];
  run.warnings = {{.code = "drift", .text = "it drifts", .job = 0},
                  {.code = "drift", .text = "it drifts, too", .job = 1},
                  {"all", "x"}};
  EXPECT_THAT(run_of_job(run, 1).warnings,
              ElementsAre(Warning{"drift", "it drifts, too"}, Warning{"all", "x"}));
}

TEST(UnlikeJobs, StayInTheReport) {
  const Report report = two_models();
  const Report read = report_from_json(to_json(report));
  EXPECT_EQ(read.arms[3].workloads, report.arms[3].workloads);
  EXPECT_EQ(to_json(read), to_json(report));
}

TEST(UnlikeJobs, ThatContradictTheirRunsAreRefused) {
  const auto refusal = [](const Report& report) -> std::string {
    return refusal_of<InvalidReport>([&] { require_consistent_runs(report); });
  };
  Report wrong = two_models();
  wrong.arms.erase(wrong.arms.begin(), wrong.arms.begin() + 3);
  wrong.arms[0].runs[0].throughput = 4600;
  EXPECT_EQ(refusal(wrong),
            "/arms/0/workloads is of unlike work, but a run has a throughput of all");
  wrong.arms[0].workloads.push_back(training("resnet34"));
  EXPECT_EQ(refusal(wrong), "/arms/0/workloads is of 3 jobs, but a run has 2 jobs");
}

TEST(UnlikeJobs, JobsMayCountInOtherUnitsThanTheRun) {
  Report report = two_models();
  report.arms[3].runs[0].jobs[1].sample = SampleUnit::sequence;
  const std::string text = to_json(report);
  EXPECT_THAT(text, HasSubstr("\"throughput_sequences_per_second\": 4000.0"));
  EXPECT_EQ(to_json(report_from_json(text)), text);
}

TEST(UnlikeJobs, AreInTablesAndChartsOfAReport) {
  const RunSet set = set_of(two_models());
  std::ostringstream out;
  print_markdown(out, set);
  EXPECT_THAT(out.str(), HasSubstr("| weighted speedup |"));
  EXPECT_THAT(out.str(), HasSubstr("times the weighted speedup of as many jobs one after another"));
  EXPECT_THAT(out.str(), HasSubstr("| slices | 2 | resnet18 forward, fp16, batch 256 |"));
  EXPECT_THAT(out.str(), HasSubstr("slices, job 2"));
  const Page page = report_page({set});
  EXPECT_EQ(page.charts.at(0).name, "weighted_speedup");
  EXPECT_EQ(page.charts.at(1).name, "progress");
  EXPECT_EQ(page.charts.at(1).table.rows.size(), 2);
  EXPECT_EQ(page.charts.at(1).table.columns.at(2).title, "job 2: resnet18 forward");
  RunSet without = set_of(four_jobs());
  std::ostringstream plain;
  print_markdown(plain, without);
  EXPECT_THAT(plain.str(), testing::Not(HasSubstr("weighted speedup")));
}

TEST(UnlikeJobs, AreMergedWithoutASumOfTheirSamples) {
  std::vector<Report> jobs(2, sample_report());
  jobs[1].invocation.config = forward("resnet18");
  for (Report& job : jobs) job.arms[0].runs[0].ranks[0].window_start_unix_seconds = 100;
  jobs[1].arms[0].runs[0].flops_per_sample = 1e9;
  jobs[1].arms[0].runs[0].parameters = 10;
  const nearmetal::Run run = merge_jobs(jobs, true).first;
  EXPECT_EQ(run.throughput.reason, unlike_work);
  EXPECT_FALSE(run.jain_fairness);
  ASSERT_EQ(run.jobs.size(), 2);
  EXPECT_DOUBLE_EQ(*run.jobs[1].flops_per_sample, 1e9);
  const double flops = run.jobs[0].throughput * 2.4e10 + run.jobs[1].throughput * 1e9;
  EXPECT_DOUBLE_EQ(*run.flops_per_second, flops);
  EXPECT_DOUBLE_EQ(*run.share_of_peak, flops / (2 * 9.89e14));
  EXPECT_EQ(run.parameters, 25557032 + 10);
  EXPECT_EQ(run_of_job(run, 0).parameters, 25557032);
  EXPECT_EQ(run_of_job(run, 1).parameters, 10);
  EXPECT_TRUE(merge_jobs(jobs).first.throughput) << "of alike ones";
}

}  // namespace
}  // namespace nearmetal
