#include "bench/run/rank_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/networks/registry.h"
#include "reports/json/json.h"
#include "tests/support/fake_backend.h"

namespace nearmetal {
namespace {

using testing::Contains;
using testing::Field;
using testing::HasSubstr;
using testing::Not;

// A rank whose 6 steps of warm-up and 4 of the window, of 8 images each, take half a second.
struct RankReport : testing::Test {
  RankReport() {
    request.config.model = "resnet18";
    request.config.device = Device::cpu;
    request.config.duration_seconds = 2;
    device.config = request.config;
    device.config.batch = 8;
    device.config.precision = Precision::fp32;
    device.info.name = "Fake One";
    device.info.peak_flops_per_second[Precision::fp32] =
        32 * device.graph.training_flops_per_sample();
    result.prepared = Prepared{.begin_seconds = 1,
                               .end_seconds = 3,
                               .kernel_choices = {},
                               .device_bytes = 1000,
                               .communication = {},
                               .warnings = {{"plan_cache", "full"}}};
    TrainerResult& trained = result.trained.emplace();
    result.first_step_end_seconds = 3.5;
    const std::vector<double> warm_up_seconds(6, 0.5);
    trained.warm_up = judge_warm_up(warm_up_seconds, {});
    trained.window_first_step = 6;
    trained.window_steps = 4;
    trained.host_window_seconds = 2;
    trained.steps.assign(10, {.seconds = 0.5, .loss = 2, .gradient_norm = 1});
  }

  nearmetal::Run make() const {
    const Report report = make_rank_report(request, device, start, result);
    EXPECT_EQ(report.arms.at(0).runs.size(), 1u);
    EXPECT_EQ(report.status, report.arms[0].runs[0].status);
    EXPECT_NO_THROW(report_from_json(to_json(report))) << "as the schema says";
    return report.arms[0].runs[0];
  }
  nearmetal::Run make_with_two_ranks(bool exact) {
    start.world_size = 2;
    result.prepared->communication.emplace().library = "mpi 4";
    result.checks.other_replica = 0;
    result.checks.bucket_tests = {
        {.bytes = 100, .type = Precision::fp32, .seconds = 2, .exact = true},
        {.bytes = 300, .type = Precision::fp32, .seconds = 3, .exact = exact}};
    return make();
  }

  Script script;
  FakeBackend backend{script};
  RunRequest request;
  PreparedDevice device{{}, "asked for", build_network("resnet18", {224, 1000}), backend, {}};
  RankStart start{.argv = {"nearmetal", "run"},
                  .started_at = "2026-01-02T03:04:05Z",
                  .environment = {},
                  .set_up = {.clock = "a test", .start_seconds = 0.1, .backend_seconds = 0.4}};
  RankResult result;
};

const char* const ended_before = "the run ended before";

TEST_F(RankReport, OfACompleteRun) {
  const nearmetal::Run run = make();
  EXPECT_EQ(run.status, Status::complete);
  EXPECT_EQ(run.failure, std::nullopt);
  EXPECT_EQ(run.started_at, "2026-01-02T03:04:05Z");
  EXPECT_EQ(run.device_reason, "asked for");
  EXPECT_EQ(*run.window, (TimedWindow{.first_step = 6, .steps = 4, .samples = 32, .seconds = 2}));
  EXPECT_EQ(*run.throughput, 16);
  EXPECT_EQ(*run.flops_per_second, 16 * run.flops_per_sample);
  EXPECT_EQ(*run.share_of_peak, 0.5);
  EXPECT_EQ(*run.proof.window_end_loss, 2);
  EXPECT_EQ(run.communication, std::nullopt);
  EXPECT_THAT(run.warnings, testing::ElementsAre(nearmetal::Warning{"plan_cache", "full"}));
}

TEST_F(RankReport, WarnsOfAStepThatStoodStill) {
  result.trained->window_steps = 304;
  result.trained->steps.assign(310, {.seconds = 0.015, .loss = 2, .gradient_norm = 1});
  result.trained->steps[306].seconds = 4;
  const auto has_stall = Contains(Field(&nearmetal::Warning::code, "stall"));
  EXPECT_THAT(make().warnings, has_stall);
  EXPECT_THAT(make().warnings, Contains(Field(&nearmetal::Warning::text,
                                              HasSubstr("step 300 of the window took 4.00 s"))));
  result.trained->steps[306].seconds = 0.1;
  EXPECT_THAT(make().warnings, Not(has_stall)) << "less than 10 times the others";
}

TEST_F(RankReport, WarnsWhereTheMachineIsNotWhatTheUserSays) {
  start.environment.claim = MachineKind::bare_metal;
  start.environment.virtualisation.machine = MachineKind::vm;
  start.environment.virtualisation.hypervisor = std::string("kvm");
  EXPECT_THAT(
      make().warnings,
      Contains(nearmetal::Warning{
          "claim_contradicted", "--environment says bare-metal, but there is a hypervisor: kvm"}));
  start.environment.claim = MachineKind::vm;
  EXPECT_THAT(make().warnings,
              Not(Contains(Field(&nearmetal::Warning::code, "claim_contradicted"))));
}

TEST_F(RankReport, WarnsWhereMpiCannotCopyBetweenProcesses) {
  const auto has_warning = Contains(Field(&nearmetal::Warning::code, "no_cross_memory_attach"));
  start.environment.limits.cross_memory_attach = false;
  device.config.device = Device::cpu;
  EXPECT_THAT(make().warnings, Not(has_warning)) << "one rank sums nothing";
  start.world_size = 2;
  EXPECT_THAT(make().warnings, has_warning);
  start.environment.limits.cross_memory_attach = true;
  EXPECT_THAT(make().warnings, Not(has_warning));
}

TEST_F(RankReport, WarnsOfErrorsOfRdmaPorts) {
  const auto has_errors = Contains(Field(&nearmetal::Warning::code, "rdma_errors"));
  result.monitoring.emplace().interval_seconds = 1;
  result.monitoring->rdma_traffic = {{"mlx5_0", 1, 100, 100, 0},
                                     {"mlx5_1", 1, 100, 100, Unknown{"not told"}}};
  EXPECT_THAT(make().warnings, Not(has_errors));
  result.monitoring->rdma_traffic[0].errors = 3;
  EXPECT_THAT(make().warnings, Contains(Field(&nearmetal::Warning::text,
                                              HasSubstr("in the window: 3 at mlx5_0 port 1"))));
}

TEST_F(RankReport, WarnsOfADurationThatWasMissed) {
  const auto has_duration = Contains(Field(&nearmetal::Warning::code, "duration"));
  device.config.duration_seconds = 2.4;
  EXPECT_THAT(make().warnings, Not(has_duration)) << "by less than a step";
  device.config.duration_seconds = 3;
  EXPECT_THAT(make().warnings, has_duration);
  result.trained->stopped = true;
  result.trained->steps.pop_back();
  EXPECT_THAT(make().warnings, Not(has_duration)) << "of an interrupted run";
}

TEST_F(RankReport, WarnsWhereFewStepsCannotShowThatTheyAreSteady) {
  result.trained->warm_up = judge_warm_up(std::vector<double>(3, 0.5), {});
  EXPECT_THAT(make().warnings, Contains(Field(&nearmetal::Warning::code, "steadiness_unknown")));
}

TEST_F(RankReport, WarnsOfClocksThatDifferByMoreThanAWaitToQueueSteps) {
  const auto differ = Contains(Field(&nearmetal::Warning::code, "clocks_differ"));
  TrainerResult& trained = *result.trained;
  trained.host_window_seconds = 2.1;
  EXPECT_THAT(make().warnings, differ);
  trained.host_window_seconds = 1.2;  // four steps of half a second: 0.8 s late
  EXPECT_THAT(make().warnings, Not(differ));
  trained.host_window_seconds = 0.9;
  EXPECT_THAT(make().warnings, differ);
}

TEST_F(RankReport, OfItsRank) {
  const Rank rank = make().ranks.at(0);
  EXPECT_EQ(rank.set_up->start_seconds, 0.1);
  EXPECT_EQ(rank.set_up->backend_seconds, 0.4);
  EXPECT_EQ(rank.set_up->prepare_seconds, 2);
  EXPECT_EQ(rank.set_up->first_step_seconds, 0.5);
  EXPECT_EQ(rank.set_up->total_seconds, 3.5);
  EXPECT_EQ(rank.step_seconds.size(), 10u);
  EXPECT_EQ(rank.step_time->median_seconds, 0.5);
  EXPECT_EQ(*rank.host_window_seconds, 2);
  EXPECT_EQ(*rank.device_bytes, 1000);
  EXPECT_EQ(rank.exposed_communication_seconds.reason, "no gradients are exchanged");
}

TEST_F(RankReport, OfALossThatIsNotFinite) {
  result.trained->steps.resize(8);
  result.trained->failed_step = 8;
  const nearmetal::Run run = make();
  EXPECT_EQ(run.status, Status::failed);
  EXPECT_THAT(*run.failure, testing::HasSubstr("the loss of step 8 is not finite"));
  EXPECT_FALSE(run.proof.loss_finite);
  EXPECT_EQ(run.window->samples, 16) << "what was measured stays";
  EXPECT_EQ(run.throughput.reason, "the run failed");
  EXPECT_EQ(run.share_of_peak.reason, "the run failed");
  EXPECT_TRUE(run.peak_flops_per_second);
}

TEST_F(RankReport, OfATrainingWithoutAnyUpdate) {
  for (StepRecord& step : result.trained->steps) step.update_skipped = true;
  const nearmetal::Run run = make();
  EXPECT_EQ(run.status, Status::failed);
  EXPECT_THAT(*run.failure, testing::HasSubstr("every update was skipped"));
  EXPECT_EQ(run.ranks[0].skipped_updates, 4);
}

TEST_F(RankReport, OfATrainingWithFewUpdates) {
  const auto skip_of_window = [&](size_t count) {
    for (size_t i = 0; i < count; ++i) {
      result.trained->steps[result.trained->window_first_step + i].update_skipped = true;
    }
    return make();
  };
  EXPECT_EQ(skip_of_window(0).status, Status::complete);
  const nearmetal::Run run = skip_of_window(1);
  EXPECT_EQ(run.status, Status::failed) << "more than a tenth";
  EXPECT_THAT(*run.failure, testing::HasSubstr("1 of 4 updates were skipped"));
  EXPECT_EQ(skip_of_window(3).status, Status::failed);
}

TEST_F(RankReport, OfAnInterruptedRunHasTheFiguresSoFar) {
  result.trained->steps.resize(8);
  result.trained->stopped = true;
  const nearmetal::Run run = make();
  EXPECT_EQ(run.status, Status::partial);
  EXPECT_EQ(run.failure, "interrupted");
  EXPECT_EQ(run.window->steps, 2);
  EXPECT_EQ(*run.throughput, 16);
}

TEST_F(RankReport, OfAnInterruptedWarmUpHasNoWindow) {
  result.trained->steps.resize(2);
  result.trained->warm_up.reset();
  result.trained->window_first_step = 0;
  result.trained->stopped = true;
  const nearmetal::Run run = make();
  EXPECT_EQ(run.status, Status::partial);
  EXPECT_EQ(run.warm_up.reason, ended_before);
  EXPECT_EQ(run.throughput.reason, ended_before);
  EXPECT_TRUE(run.ranks[0].set_up);
  EXPECT_EQ(run.ranks[0].step_seconds.size(), 2u);
}

TEST_F(RankReport, OfARunThatCouldNotBePrepared) {
  result = {};
  result.failure = "out of memory";
  const nearmetal::Run run = make();
  EXPECT_EQ(run.status, Status::failed);
  EXPECT_EQ(run.failure, "out of memory");
  EXPECT_EQ(run.throughput.reason, "the run failed");
  for (const std::string& reason :
       {run.window.reason, run.warm_up.reason, run.peak_flops_per_second.reason,
        run.proof.window_start_loss.reason, run.ranks[0].set_up.reason,
        run.ranks[0].step_time.reason, run.ranks[0].device_bytes.reason,
        run.ranks[0].kernel_choices_sha256.reason}) {
    EXPECT_EQ(reason, ended_before);
  }
  EXPECT_GT(run.parameters, 0);
}

TEST_F(RankReport, OfChecksThatPass) {
  const nearmetal::Run run = make_with_two_ranks(true);
  EXPECT_EQ(run.status, Status::complete);
  EXPECT_EQ(run.proof.replicas_identical, true);
  EXPECT_EQ(run.proof.sums_exact, true);
  EXPECT_EQ(run.communication->library, "mpi 4");
  EXPECT_EQ(run.communication->bytes_per_step, 400);
  EXPECT_EQ(run.communication->buckets_seconds, 5);
  EXPECT_EQ(run.communication->buckets.at(1).bus_bandwidth_bytes_per_second, 100);
}

TEST_F(RankReport, HasTheWayToSumThatWasChosen) {
  result.prepared->communication.emplace().all_reduce = AllReduceKind::host;
  const auto reported = [&](std::optional<AllReduceKind> asked) {
    device.config.all_reduce = asked;
    const Report report = make_rank_report(request, device, start, result);
    EXPECT_EQ(report.invocation.config_sha256, config_sha256(report.invocation.config));
    return report.invocation.config.all_reduce;
  };
  EXPECT_EQ(reported(AllReduceKind::automatic), AllReduceKind::host);
  EXPECT_EQ(reported(AllReduceKind::hierarchical), AllReduceKind::hierarchical)
      << "as it was asked for: on one host NCCL sums alone";
  EXPECT_EQ(reported({}), std::nullopt);
  result.prepared->communication.reset();
  EXPECT_EQ(reported(AllReduceKind::automatic), AllReduceKind::automatic) << "nothing was summed";
}

TEST_F(RankReport, OfChecksThatDoNotPass) {
  nearmetal::Run run = make_with_two_ranks(false);
  EXPECT_EQ(run.status, Status::failed);
  EXPECT_EQ(run.failure, "the gradients of the ranks are not summed right");
  EXPECT_EQ(run.proof.sums_exact, false);
  EXPECT_FALSE(run.throughput);
  result.checks.other_replica = 1;
  result.checks.bucket_tests.reset();
  run = make();
  EXPECT_EQ(run.proof.replicas_identical, false);
  EXPECT_THAT(*run.failure, testing::HasSubstr("parameters or momentum of rank 1"));
}

TEST_F(RankReport, OfAVerificationThatWasInterrupted) {
  result.checks.interrupted = "--verify";
  const nearmetal::Run run = make();
  EXPECT_EQ(run.status, Status::partial);
  EXPECT_EQ(run.failure, "interrupted before the end of --verify");
  EXPECT_EQ(*run.throughput, 16);
}

TEST_F(RankReport, OfALatencyThatWasInterrupted) {
  device.config.inference = true;
  result.checks.outputs_finite = true;
  result.checks.interrupted = "the latency";
  const nearmetal::Run run = make();
  EXPECT_EQ(run.status, Status::partial);
  EXPECT_EQ(run.failure, "interrupted before the end of the latency");
  EXPECT_EQ(run.ranks[0].latency.reason, "the run ended before");
}

TEST_F(RankReport, SetsTheStepBesideItsRoofline) {
  result.checks.profile = Profile{
      .entries =
          {{.name = "conv", .implementation = "a", .seconds = 0.2, .flops = 100, .bytes = 10},
           {.name = "norm", .implementation = "b", .seconds = 0.1, .flops = 0, .bytes = 50}},
      .copy_bytes_per_second = 500,
      .matrix_flops_per_second = 1000};
  const nearmetal::Run run = make();
  EXPECT_DOUBLE_EQ(run.profile->sum_seconds, 0.3);
  EXPECT_DOUBLE_EQ(*run.profile->roofline_seconds, 0.2);  // 0.1 by flops, 0.1 by bytes
  EXPECT_DOUBLE_EQ(*run.profile->share_of_roofline, 0.4);
}

TEST_F(RankReport, HasNoFloorAboveTheTimeTaken) {
  result.checks.profile = Profile{
      .entries =
          {{.name = "conv", .implementation = "a", .seconds = 0.02, .flops = 100, .bytes = 10},
           {.name = "norm", .implementation = "b", .seconds = 0.1, .flops = 0, .bytes = 80}},
      .copy_bytes_per_second = 500,
      .matrix_flops_per_second = 1000};
  const nearmetal::Run run = make();
  EXPECT_DOUBLE_EQ(*run.profile->roofline_seconds, 0.12) << "0.02 and 0.1, not 0.1 and 0.16";
}

}  // namespace
}  // namespace nearmetal
