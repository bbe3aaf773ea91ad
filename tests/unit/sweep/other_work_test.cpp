#include <gtest/gtest.h>

#include "bench/run/defaults.h"
#include "bench/sweep/sweep_report.h"
#include "bench/sweep/sweep_runs.h"
#include "tests/support/sample_hosts.h"
#include "tests/support/sample_report.h"

namespace nearmetal {
namespace {

Workload asked_for(int64_t batch) {
  Workload asked;
  asked.config.batch = batch;
  asked.given = {"batch", "seed", "loss_scale", "verify"};
  fill_defaults(asked.config, Device::cuda);
  return asked;
}

Report job_of(const RunConfig& config) {
  Report job = sample_report();
  job.invocation.config = config;
  return job;
}

TEST(OtherWork, IsNamedByTheSettingsThatDecideIt) {
  const Workload asked = asked_for(2);
  Report job = job_of(asked.config);
  job.invocation.config.gpu = 3;
  job.invocation.config.ranks = 2;
  job.invocation.config.quiet = true;
  EXPECT_EQ(other_work(asked, job), "");
  job.invocation.config.batch = 4;
  job.invocation.config.verify = true;
  job.invocation.config.loss_scale = LossScale{8, true};
  EXPECT_EQ(other_work(asked, job),
            "batch 4 instead of 2, loss_scale dynamic instead of 16, verify on instead of off");
  job.arms[0].runs[0].ranks.clear();
  EXPECT_EQ(other_work(asked, job), "") << "it did none";
}

TEST(OtherWork, IsNotWhatTheJobChoosesItself) {
  const Workload asked = asked_for(largest_that_fits);
  Report job = job_of(asked.config);
  job.invocation.config.batch = 992;
  job.invocation.config.threads = 8;
  fill_defaults(job.invocation.config, Device::cuda);
  EXPECT_EQ(other_work(asked, job), "");
  job.invocation.config.seed = 7;
  EXPECT_EQ(other_work(asked, job), "seed 7 instead of 1");
}

TEST(OtherWork, IsNotTheWayToSumThatAJobChose) {
  Workload asked = asked_for(2);
  asked.config.all_reduce = AllReduceKind::automatic;
  asked.given.emplace_back("all_reduce");
  Report job = job_of(asked.config);
  job.invocation.config.all_reduce = AllReduceKind::host;
  EXPECT_EQ(other_work(asked, job), "");
  asked.config.all_reduce = AllReduceKind::nccl;  // as the first run chose
  EXPECT_EQ(other_work(asked, job), "all_reduce host instead of nccl");
}

TEST(OtherWork, IsToldByWhatWasChosen) {
  const Workload asked = asked_for(2);
  Report job = job_of(asked.config);
  job.invocation.config.warmup = 7;
  EXPECT_EQ(other_work(asked, job), "") << "its default";
  job.invocation.config.batch = 4;
  EXPECT_EQ(other_work(asked, job), "batch 4 instead of 2");
}

LaunchPlan plan_of_one_job() {
  LaunchPlan plan;
  plan.placements = {place(listed({Job{{{"a", {0}, 0}}}}), {host("a", 1)})};
  plan.workloads = {{asked_for(largest_that_fits)}};
  plan.file.layouts.resize(1);
  return plan;
}

Report job_of_batch(int64_t batch) {
  Report job = sample_report();
  job.arms.resize(1);
  job.invocation.config.batch = batch;
  return job;
}

TEST(OtherWork, IsKeptAsFailedAndNotThatOfTheArm) {
  const LaunchPlan plan = plan_of_one_job();
  const LaunchOutcome outcome{{job_of_batch(4)}, ExitCode::run_failed, "it did other work"};
  const Report other = report_of_launch(plan, 0, outcome);
  const Report report = report_of_sweep(
      plan, {}, {{0, 1, other}, {0, 2, report_of_launch(plan, 0, {{job_of_batch(992)}})}},
      Report{});
  EXPECT_EQ(report.arms[0].config->batch, 992);
  const nearmetal::Run& run = report.arms[0].runs.at(0);
  EXPECT_EQ(run.status, Status::failed);
  EXPECT_EQ(run.failure, "it did other work");
  EXPECT_EQ(run.ranks.at(0).step_seconds, sample_rank().step_seconds);
  EXPECT_EQ(run.window->steps, 2);
  EXPECT_FALSE(run.throughput);
}

TEST(OtherWork, WhatAJobChoseIsTheArmsWhateverEndsBeforeIt) {
  const LaunchPlan plan = plan_of_one_job();
  const Report measured = job_of_batch(992);
  const LaunchOutcome none{{}, ExitCode::timed_out, "no step"};
  const Report report = report_of_sweep(
      plan, {}, {{0, 1, measured}, {0, 2, report_of_launch(plan, 0, none)}}, Report{});
  EXPECT_EQ(report.arms[0].config->batch, 992);
}

}  // namespace
}  // namespace nearmetal
