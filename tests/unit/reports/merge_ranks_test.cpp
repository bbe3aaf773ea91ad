#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>

#include "reports/merge/merge.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;

// The report of a rank that took `seconds` for 100 images.
Report part(int64_t rank, double seconds, const std::string& host = "vm0") {
  Report report;
  Environment environment;
  environment.host_name = host;
  environment.gpus.emplace_back().name = "GPU " + std::to_string(rank);
  report.environments = {environment};
  Run run;
  run.world_size = 3;
  run.flops_per_sample = 10;
  run.window = TimedWindow{.first_step = 5, .steps = 10, .samples = 100, .seconds = seconds};
  run.throughput = 100 / seconds;
  run.peak_flops_per_second = 1000.0;
  run.proof.window_start_loss = 7.0 + static_cast<double>(rank);
  Rank own;
  own.rank = rank;
  own.gpu = 0;
  own.exposed_communication_seconds = 0.1 * static_cast<double>(rank);
  run.ranks = {own};
  report.arms.emplace_back().runs = {run};
  return report;
}

std::vector<Report> three() { return {part(0, 1), part(1, 2), part(2, 1, "vm1")}; }

Run merged_run(const std::vector<Report>& parts) { return merge_ranks(parts).arms[0].runs[0]; }

TEST(MergeRanks, AloneNothingChanges) {
  Report alone = part(0, 1);
  alone.arms[0].runs[0].world_size = 1;
  EXPECT_EQ(merge_ranks({alone}).arms[0].runs[0].window, alone.arms[0].runs[0].window);
}

TEST(MergeRanks, ImagesOfAllInTheTimeOfTheSlowest) {
  const nearmetal::Run run = merged_run(three());
  EXPECT_EQ(run.window->samples, 300);
  EXPECT_EQ(run.window->seconds, 2);
  EXPECT_EQ(*run.throughput, 150);
  EXPECT_EQ(*run.flops_per_second, 1500);
  EXPECT_EQ(*run.share_of_peak, 0.5);
  EXPECT_EQ(*run.proof.window_start_loss, 8);
}

// Two stages with scripted times, of one replica.
std::vector<Report> stages_of(std::vector<PipelineSeconds> seconds) {
  std::vector<Report> parts;
  for (size_t i = 0; i < seconds.size(); ++i) {
    parts.push_back(part(static_cast<int64_t>(i), 2));
    RunConfig& config = parts.back().invocation.config;
    config.pipeline = static_cast<int64_t>(seconds.size());
    config.micro_batches = 4;
    nearmetal::Run& run = parts.back().arms[0].runs[0];
    run.pipeline.emplace();
    run.ranks[0].stage.emplace().seconds = seconds[i];
  }
  return parts;
}

TEST(MergeRanks, StagesHaveTheSamplesOfOneReplica) {
  const PipelineSeconds times{.span = 15, .forward = 4, .backward = 8, .waiting = 3};
  const nearmetal::Run run = merged_run(stages_of({times, times}));
  EXPECT_EQ(run.window->samples, 100) << "each rank counts them all";
  EXPECT_EQ(*run.throughput, 50);
}

TEST(MergeRanks, TheBubbleIsThatOfAllStages) {
  const PipelineSeconds equal{.span = 16, .forward = 4, .backward = 8, .waiting = 4};
  PipelineBubble bubble = merged_run(stages_of({equal, equal})).pipeline->bubble;
  EXPECT_DOUBLE_EQ(*bubble.measured, 0.25);
  EXPECT_DOUBLE_EQ(*bubble.simulated, 0.2) << "without what transfers took";
  EXPECT_DOUBLE_EQ(bubble.ideal, 0.2);
  const PipelineSeconds light{.span = 16, .forward = 2, .backward = 4, .waiting = 10};
  bubble = merged_run(stages_of({equal, light})).pipeline->bubble;
  EXPECT_DOUBLE_EQ(*bubble.measured, 1 - 18.0 / 32);
  EXPECT_DOUBLE_EQ(*bubble.simulated, 0.28) << "the imbalance is in it";
  EXPECT_LT(*bubble.simulated, *bubble.measured);
  auto parts = stages_of({equal, light});
  parts[1].arms[0].runs[0].ranks[0].stage->seconds = Unknown{"not measured"};
  EXPECT_FALSE(merged_run(parts).pipeline->bubble.measured);
}

// A step of 4 micro-batches in this stage of three, whose tasks take the seconds that are given.
std::vector<TaskMark> marks_of(int stage, const std::function<double(const StageTask&)>& seconds) {
  std::vector<TaskMark> marks;
  for (const StageTask& task : stage_tasks(RunConfig{}.schedule, 3, 4, stage)) {
    const double begin = marks.empty() ? 0 : marks.back().end_seconds;
    marks.push_back({task, begin, begin + seconds(task)});
  }
  return marks;
}

RankStage& stage_of(std::vector<Report>& parts, int rank) {
  return *parts[rank].arms[0].runs[0].ranks[0].stage;
}

// Three equal stages, whose tasks take 1 and 2 s, and a value half a second.
std::vector<Report> three_stages() {
  const PipelineSeconds equal{.span = 16, .forward = 4, .backward = 8};
  std::vector<Report> parts = stages_of({equal, equal, equal});
  for (int rank = 0; rank < 3; ++rank) {
    RankStage& stage = stage_of(parts, rank);
    stage.boundary_seconds = 0.5;
    stage.marks = marks_of(
        rank, [](const StageTask& task) { return task.pass == Pass::forward ? 1.0 : 2.0; });
  }
  return parts;
}

TEST(MergeRanks, TransfersTakeWhatTheStageThatDidNotWaitMeasured) {
  std::vector<Report> parts = three_stages();
  stage_of(parts, 1).boundary_seconds = 3;
  const std::vector<StageTimes> times{{1, 2, 0.5}, {1, 2, 0.5}, {1, 2, 0}};
  const double expected = bubble_of(simulate_pipeline(RunConfig{}.schedule, times, 4));
  PipelineBubble bubble = merged_run(parts).pipeline->bubble;
  EXPECT_DOUBLE_EQ(*bubble.simulated_with_transfers, expected);
  EXPECT_GT(expected, *bubble.simulated);
  stage_of(parts, 2).boundary_seconds = Unknown{"not tested"};
  bubble = merged_run(parts).pipeline->bubble;
  EXPECT_FALSE(bubble.simulated_with_transfers);
  EXPECT_TRUE(bubble.simulated);
}

TEST(MergeRanks, TasksThatWereSlowedAreSoInTheBubbleWithTransfers) {
  std::vector<Report> parts = three_stages();
  const double even = *merged_run(parts).pipeline->bubble.simulated_with_transfers;
  // Twice as long as means, so that it is their shares that count.
  const auto seconds = [](const StageTask& task) {
    return (task.pass == Pass::forward ? 2.0 : 4.0) * (task.micro_batch == 0 ? 0.4 : 1.2);
  };
  std::vector<StageTimes> times;
  for (int rank = 0; rank < 3; ++rank) {
    stage_of(parts, rank).marks = marks_of(rank, seconds);
    times.push_back({.transfer_seconds = rank < 2 ? 0.5 : 0});
    for (const StageTask& task : stage_tasks(RunConfig{}.schedule, 3, 4, rank)) {
      times.back().task_seconds.push_back(seconds(task) / 2);
    }
  }
  const PipelineBubble bubble = merged_run(parts).pipeline->bubble;
  EXPECT_NEAR(*bubble.simulated_with_transfers,
              bubble_of(simulate_pipeline(RunConfig{}.schedule, times, 4)), 1e-12);
  EXPECT_GT(std::abs(*bubble.simulated_with_transfers - even), 1e-3);
  stage_of(parts, 1).marks = marks_of(1, [](const StageTask&) { return 0.0; });
  EXPECT_FALSE(merged_run(parts).pipeline->bubble.simulated_with_transfers);
  stage_of(parts, 1).marks.clear();
  EXPECT_FALSE(merged_run(parts).pipeline->bubble.simulated_with_transfers);
}

TEST(MergeRanks, AProofOfOneStageIsThatOfTheRun) {
  auto parts = stages_of({{}, {}});
  parts[0].arms[0].runs[0].proof.replicas_identical = true;
  parts[1].arms[0].runs[0].proof.replicas_identical = false;
  EXPECT_EQ(merged_run(parts).proof.replicas_identical, false);
}

TEST(MergeRanks, AProofThatFailsOnOneRankFails) {
  const auto proof_of = [](int bad_rank, const std::function<void(Proof&)>& fail) {
    auto parts = three();
    for (int rank = 0; rank < 3; ++rank) {
      Proof& proof = parts[rank].arms[0].runs[0].proof;
      proof.outputs_finite = proof.replicas_identical = proof.sums_exact = true;
      proof.verify.emplace().passed = true;
      if (rank == bad_rank) fail(proof);
    }
    return merged_run(parts).proof;
  };
  const Proof good = proof_of(-1, {});
  EXPECT_TRUE(good.loss_finite && *good.outputs_finite && *good.replicas_identical &&
              *good.sums_exact && good.verify->passed);
  for (const int rank : {0, 1, 2}) {
    EXPECT_FALSE(proof_of(rank, [](Proof& proof) { proof.loss_finite = false; }).loss_finite);
    EXPECT_EQ(proof_of(rank, [](Proof& proof) { proof.outputs_finite = false; }).outputs_finite,
              false);
    EXPECT_EQ(
        proof_of(rank, [](Proof& proof) { proof.replicas_identical = false; }).replicas_identical,
        false);
    EXPECT_EQ(proof_of(rank, [](Proof& proof) { proof.sums_exact = false; }).sums_exact, false);
    EXPECT_FALSE(proof_of(rank, [](Proof& proof) { proof.verify->passed = false; }).verify->passed);
    EXPECT_EQ(proof_of(rank, [](Proof& proof) { proof.failed_step = 7; }).failed_step, 7);
  }
}

TEST(MergeRanks, TheStepThatFailedIsTheFirstOfAnyRank) {
  for (const std::array steps : {std::array{3, 7, 5}, std::array{7, 3, 5}, std::array{5, 7, 3}}) {
    auto parts = three();
    for (size_t i = 0; i < steps.size(); ++i) parts[i].arms[0].runs[0].proof.failed_step = steps[i];
    EXPECT_EQ(merged_run(parts).proof.failed_step, 3);
  }
}

TEST(MergeRanks, ClocksThatDifferByMoreThanAStepAreAWarning) {
  const auto warnings_of_start = [](double start_of_the_other_host) {
    auto parts = three();
    for (size_t i = 0; i < parts.size(); ++i) {
      nearmetal::Run& run = parts[i].arms[0].runs[0];
      run.communication.emplace();
      run.ranks[0].window_start_unix_seconds = i < 2 ? 1000 : start_of_the_other_host;
    }
    std::vector<std::string> texts;
    for (const Warning& warning : merged_run(parts).warnings) {
      EXPECT_EQ(warning.code, "clock_skew");
      texts.push_back(warning.text);
    }
    return texts;
  };
  EXPECT_THAT(warnings_of_start(1000.2), ElementsAre()) << "a step takes 0.2 s";
  EXPECT_THAT(warnings_of_start(1000.22), ElementsAre(testing::HasSubstr("is about 0.22 s ahead")));
  EXPECT_THAT(warnings_of_start(1003),
              ElementsAre(testing::HasSubstr("clock of vm1 is about 3.0 s ahead of that of vm0")));
  EXPECT_THAT(warnings_of_start(990),
              ElementsAre(testing::HasSubstr("clock of vm0 is about 10 s ahead of that of vm1")));
}

TEST(MergeRanks, IndependentRanksAddUp) {
  auto parts = three();
  for (Report& report : parts) report.invocation.config.update = Update::independent;
  EXPECT_EQ(*merged_run(parts).throughput, 250);
}

TEST(MergeRanks, RanksOfOneHostShareItsEnvironment) {
  const Report merged = merge_ranks(three());
  ASSERT_EQ(merged.environments.size(), 2u);
  EXPECT_EQ(merged.environments[0].gpus.size(), 2u);
  const auto& ranks = merged.arms[0].runs[0].ranks;
  EXPECT_EQ(ranks[1].environment, 0);
  EXPECT_EQ(ranks[1].gpu, 1);
  EXPECT_EQ(ranks[2].environment, 1);
  EXPECT_EQ(ranks[2].gpu, 0);
}

TEST(MergeRanks, HostsAreToldApartByTheirBootsAndNotByTheirNames) {
  const auto environments_of = [](const char* other_host, const char* other_boot) {
    std::vector<Report> parts = {part(0, 1, "ubuntu"), part(1, 1, other_host)};
    parts[0].environments[0].boot_id = std::string("1");
    parts[1].environments[0].boot_id = std::string(other_boot);
    const Report merged = merge_ranks(parts);
    EXPECT_EQ(merged.arms[0].runs[0].ranks[1].environment, std::ssize(merged.environments) - 1);
    for (const Environment& environment : merged.environments) {
      EXPECT_EQ(environment.gpus.size(), 2 / merged.environments.size());
    }
    return merged.environments.size();
  };
  EXPECT_EQ(environments_of("ubuntu", "2"), 2) << "two VMs of one image";
  EXPECT_EQ(environments_of("localhost", "1"), 1);
}

TEST(MergeRanks, WhatOneRankLacksTheJobLacks) {
  auto parts = three();
  nearmetal::Run& run = parts[1].arms[0].runs[0];
  run.throughput = Unknown{"the run failed"};
  run.window = Unknown{"the run failed"};
  run.status = Status::failed;
  run.failure = "its loss is not finite";
  run.proof.loss_finite = false;
  parts[0].arms[0].runs[0].status = Status::partial;
  parts[0].arms[0].runs[0].failure = "interrupted";
  const Report merged = merge_ranks(parts);
  const nearmetal::Run& job = merged.arms[0].runs[0];
  EXPECT_EQ(job.status, Status::failed);
  EXPECT_EQ(merged.status, Status::failed);
  EXPECT_EQ(job.failure, "rank 1 (vm0): its loss is not finite");
  EXPECT_EQ(job.throughput.reason, "the run failed");
  EXPECT_FALSE(job.flops_per_second);
  EXPECT_FALSE(job.proof.loss_finite);
}

TEST(MergeRanks, WhatAllSayIsSaidOnce) {
  auto parts = three();
  for (Report& report : parts) report.arms[0].runs[0].warnings = {{"drift", "slower and slower"}};
  parts[1].arms[0].runs[0].warnings.push_back({"not_steady", "never steady"});
  EXPECT_THAT(
      merged_run(parts).warnings,
      ElementsAre(Warning{"drift", "slower and slower"},
                  Warning{.code = "not_steady", .text = "never steady", .rank = 1, .host = "vm0"}));
}

TEST(MergeRanks, OneWarningInTheSameWordsHasTheWorstFigure) {
  auto parts = three();
  double share = 0.03;
  for (Report& report : parts) {
    share += 0.0001;
    report.arms[0].runs[0].warnings = {{"drift", "slower", Figure{share, 0.02, FigureUnit::share}}};
  }
  parts[1].arms[0].runs[0].warnings[0].figure->value = 0.034;
  const std::vector<Warning> warnings = merged_run(parts).warnings;
  ASSERT_EQ(warnings.size(), 1);
  EXPECT_EQ(warnings[0].rank, std::nullopt);
  EXPECT_EQ(warnings[0].figure->value, 0.034);
}

TEST(MergeRanks, ExchangeIsThatOfTheSlowest) {
  auto parts = three();
  for (size_t i = 0; i < parts.size(); ++i) {
    Communication own;
    own.bytes_per_step = 8;
    own.buckets = {{8, 1.0 + static_cast<double>(i), 4}};
    parts[i].arms[0].runs[0].communication = own;
  }
  const nearmetal::Run run = merged_run(parts);
  EXPECT_EQ(run.communication->buckets_seconds, 3);
  EXPECT_DOUBLE_EQ(*run.communication->exposed_seconds_per_step, 0.2);
}

TEST(MergeRanks, TheLeastTimeOfTheExchangeIsAtTheBestRateOfItsBuckets) {
  auto parts = three();
  for (size_t i = 0; i < parts.size(); ++i) {
    const double slower = 1 + static_cast<double>(i);  // the last rank is the slowest
    Communication own;
    own.bytes_per_step = 900;
    own.buckets = {{600, slower, 800 / slower}, {300, slower, 400 / slower}};
    parts[i].arms[0].runs[0].communication = own;
  }
  const Communication found = *merged_run(parts).communication;
  EXPECT_DOUBLE_EQ(*found.best_bus_bandwidth_bytes_per_second, 800.0 / 3);
  EXPECT_DOUBLE_EQ(*found.least_seconds_per_step, 2 * 2.0 / 3 * 900 / (800.0 / 3));
  EXPECT_LT(*found.least_seconds_per_step, found.buckets_seconds);
}

}  // namespace
}  // namespace nearmetal
