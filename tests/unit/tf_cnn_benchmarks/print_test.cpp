#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/errors.h"
#include "bench/tf_cnn_benchmarks/translate.h"
#include "tests/support/made_up_runs.h"

namespace nearmetal {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

// One rank, batch 100, whose window has these steps.
Report report_of_steps(const std::vector<double>& seconds) {
  Report report = made_up_report({{"run", {1000}}});
  Run& run = report.arms[0].runs[0];
  report.invocation.config.batch = 100;
  report.invocation.argv = {"nearmetal", "tf_cnn_benchmarks", "--display_every=2"};
  run.communication.reset();
  run.window.value->first_step = 1;
  run.window.value->steps = static_cast<int64_t>(seconds.size());
  run.ranks.resize(1);
  run.ranks[0].step_seconds = run.ranks[0].loss = {9};
  for (const double step : seconds) run.ranks[0].step_seconds.push_back(step);
  for (size_t i = 0; i < seconds.size(); ++i) {
    run.ranks[0].loss.push_back(7 + static_cast<double>(i));
  }
  return report;
}

std::string printed_report(const Report& report) {
  RunSet set;
  add_runs(set, report, "made up", true);
  std::ostringstream out;
  print_tf_cnn_benchmarks(out, set);
  return out.str();
}

// Speeds 1000, 500, 250, 500; of the first two the mean step is 0.15 s, the standard deviation 250;
// of all four the mean step is 0.225 s, the standard deviation 272.43, and the deviations from the
// median of 500 are 500, 0, 250, 0, with a median of 125.
TEST(TfPrint, StatisticsAreAsDefinedThere) {
  EXPECT_THAT(printed_report(report_of_steps({0.1, 0.2, 0.4, 0.2})),
              HasSubstr("Step\tImg/sec\tbase_loss\n"
                        "1\timages/sec: 1000.0 +/- 0.0 (jitter = 0.0)\t7.000\n"
                        "2\timages/sec: 666.7 +/- 176.8 (jitter = 370.6)\t8.000\n"
                        "4\timages/sec: 444.4 +/- 136.2 (jitter = 185.3)\t10.000\n"
                        "----------------------------------------------------------------\n"
                        "total images/sec: 1000.00\n"
                        "----------------------------------------------------------------\n"));
}

TEST(TfPrint, ModesArePrinted) {
  Report report = report_of_steps({0.1});
  EXPECT_THAT(printed_report(report), HasSubstr("Mode:        training\n"));
  EXPECT_THAT(printed_report(report), HasSubstr("Optimizer:   momentum\n"));
  report.invocation.config.forward_only = true;
  EXPECT_THAT(printed_report(report), HasSubstr("Mode:        forward only, with norms as in"));
  report.invocation.config.forward_only = false;
  report.invocation.config.inference = true;
  report.arms[0].runs[0].ranks[0].loss = {};
  EXPECT_THAT(printed_report(report), HasSubstr("Mode:        forward only\n"));
  EXPECT_THAT(printed_report(report), HasSubstr("Optimizer:   none\n")) << "nothing is updated";
  EXPECT_THAT(printed_report(report), HasSubstr("(jitter = 0.0)\t0.000\n"));
}

// The words of print_info() and _get_params_info() in benchmark_cnn.py.
TEST(TfPrint, VariablesAreUpdatedAsTheFlagSays) {
  Report report = report_of_steps({0.1});
  report.arms[0].runs[0].world_size = 2;
  EXPECT_THAT(printed_report(report), HasSubstr("Variables:   parameter_server\n")) << "by default";
  report.invocation.argv.emplace_back("--variable_update=horovod");
  EXPECT_THAT(printed_report(report),
              HasSubstr("Devices:     ['horovod/gpu:0', 'horovod/gpu:1']\n"));
  EXPECT_THAT(printed_report(report), HasSubstr("Variables:   horovod\n"));
  report.invocation.argv = {"nearmetal", "tf_cnn_benchmarks", "--variable_update", "replicated"};
  EXPECT_THAT(printed_report(report), HasSubstr("Devices:     ['/gpu:0', '/gpu:1']\n"));
  EXPECT_THAT(printed_report(report), HasSubstr("Variables:   replicated\n"));
  report.invocation.argv = {"nearmetal", "run"};
  EXPECT_THAT(printed_report(report), HasSubstr("Variables:   replicated\n"));
}

TEST(TfPrint, ArmsAreNamedWhereThereAreSeveral) {
  Report report = report_of_steps({0.1});
  EXPECT_THAT(printed_report(report), Not(HasSubstr("Arm:")));
  report.arms.push_back(report.arms[0]);
  report.arms[0].name = "batch 2";
  report.arms[1].name = "batch 4";
  EXPECT_THAT(printed_report(report), ContainsRegex("\nArm:         batch 2\n(.*\n)*"
                                                    "nearmetal: .*\nArm:         batch 4\n"));
}

TEST(TfPrint, TheSlowestRankOfThoseInStepCounts) {
  Report report = report_of_steps({0.1, 0.1});
  auto& run = report.arms[0].runs[0];
  run.communication.emplace().library = "nccl 2.28.3";
  run.world_size = 2;
  run.ranks.push_back(run.ranks[0]);
  run.ranks[1].step_seconds = {9, 0.1, 0.2};
  run.ranks[1].loss = {9, 8, 9};
  const std::string text = printed_report(report);
  EXPECT_THAT(text, HasSubstr("Batch size:  200 global\n             100 per device\n"));
  EXPECT_THAT(text, HasSubstr("Devices:     ['/gpu:0', '/gpu:1']\n"));
  EXPECT_THAT(text, HasSubstr("AllReduce:   nccl 2.28.3\n==========\n"));
  EXPECT_THAT(text, HasSubstr("1\timages/sec: 2000.0 +/- 0.0 (jitter = 0.0)\t7.500\n"));
  EXPECT_THAT(text, HasSubstr("2\timages/sec: 1333.3 "));
}

TEST(TfPrint, AnInterruptedRunHasTheBatchesThatItWasAskedFor) {
  Report report = report_of_steps({0.1, 0.1});
  report.arms[0].runs[0].status = Status::partial;
  EXPECT_THAT(printed_report(report), HasSubstr("Num batches: 2\n")) << "asked for a time";
  report.invocation.config.steps = 100;
  EXPECT_THAT(printed_report(report), HasSubstr("Num batches: 100\n"));
}

TEST(TfPrint, ARunWithoutProofHasNoTotal) {
  Report report = report_of_steps({0.1});
  fail_run("a wrong answer", report.arms[0].runs[0]);
  EXPECT_THAT(printed_report(report), Not(HasSubstr("total images/sec")));
}

TEST(TfPrint, SeveralJobsAtOnceAreRefused) {
  Report report = report_of_steps({0.1});
  report.arms[0].runs[0].jobs.resize(2);
  EXPECT_THROW(printed_report(report), NotComparable);
}

}  // namespace
}  // namespace nearmetal
