#include <cmath>

#include "base/errors.h"
#include "bench/cli/process.h"
#include "bench/environment/environment.h"
#include "tests/support/cmd_run_fixture.h"

namespace nearmetal {
namespace {

using CmdRunFailure = CmdRun;

using testing::HasSubstr;
using testing::Not;

TEST_F(CmdRunFailure, ALossThatIsNotFiniteIsAFailureWithoutThroughput) {
  script.step = [](int64_t step) {
    return StepRecord{.seconds = 0.01, .loss = step < 20 ? 1.0f : std::nanf("")};
  };
  EXPECT_EQ(run({"--steps", "40"}), ExitCode::run_failed);
  const nearmetal::Run failed = only_run();
  EXPECT_EQ(failed.status, Status::failed);
  EXPECT_EQ(report().exit_code, 6);
  EXPECT_FALSE(failed.proof.loss_finite);
  EXPECT_EQ(failed.proof.failed_step, 20);
  EXPECT_FALSE(failed.throughput);
  EXPECT_EQ(failed.ranks.at(0).step_seconds.size(), 20u) << "what was measured stays";
  EXPECT_THAT(out.str(), Not(HasSubstr("images/s")));
  EXPECT_THAT(err.str(), HasSubstr("the loss of step 20 is not finite"));
}

TEST_F(CmdRunFailure, ARunWithoutAnyUpdateIsNoTraining) {
  script.step = [](int64_t step) {
    const bool skipped = step >= 3;
    return StepRecord{.seconds = 0.01,
                      .loss = 7e37f,
                      .gradient_norm = skipped ? INFINITY : 1,
                      .update_skipped = skipped};
  };
  EXPECT_EQ(run({"--steps", "10"}), ExitCode::run_failed);
  EXPECT_THAT(err.str(), HasSubstr("every update was skipped"));
  EXPECT_THAT(out.str(), Not(HasSubstr("images/s")));
  EXPECT_THAT(out.str(), HasSubstr("7.000e+37"));
  EXPECT_THAT(warning_codes(), testing::Contains("diverged"));
}

TEST_F(CmdRunFailure, AnInterruptIsAPartialReport) {
  script.step = [this](int64_t step) {
    if (step == 14) stop = 2;
    return StepRecord{.seconds = 0.01, .loss = 1};
  };
  EXPECT_EQ(static_cast<int>(run({"--steps", "40"})), 130);
  const nearmetal::Run partial = only_run();
  EXPECT_EQ(partial.status, Status::partial);
  EXPECT_EQ(report().exit_code, 130);
  EXPECT_EQ(partial.window->steps, 15 - partial.window->first_step);
  EXPECT_TRUE(partial.throughput);
  EXPECT_THAT(out.str(), HasSubstr("interrupted"));
}

TEST_F(CmdRunFailure, TerminationDuringWarmUpIsReportedToo) {
  stop = 15;
  EXPECT_EQ(static_cast<int>(run({"--steps", "40"})), 143);
  const nearmetal::Run partial = only_run();
  EXPECT_EQ(partial.status, Status::partial);
  EXPECT_FALSE(partial.window);
  EXPECT_FALSE(partial.throughput);
}

TEST_F(CmdRunFailure, OutOfMemoryNamesTheBatchThatWouldFit) {
  script.on_prepare = [] { throw OutOfMemory("raw", 200'000'000'000, 140'000'000'000, 1024); };
  EXPECT_EQ(run({}), ExitCode::run_failed);
  EXPECT_THAT(err.str(), HasSubstr("200.0 GB needed, 140.0 GB free"));
  EXPECT_THAT(err.str(), HasSubstr("the largest batch that fits is 1024"));
  EXPECT_EQ(only_run().status, Status::failed);
  EXPECT_THAT(out.str(), Not(HasSubstr("images/s")));
}

TEST_F(CmdRunFailure, BatchAutoWithoutRoomForOneImageFails) {
  script.largest_batch = 0;
  EXPECT_EQ(run({"--device", "cuda", "--batch", "auto"}), ExitCode::run_failed);
  EXPECT_THAT(err.str(), HasSubstr("not even a batch of 1 fits"));
  EXPECT_EQ(report().invocation.config.batch, std::nullopt);
}

TEST_F(CmdRunFailure, VerifyFailsWhenItDoesNot) {
  for (const float loss : {6.9f, std::nanf("")}) {
    script.fixed_batch_loss = [loss](int64_t) { return loss; };
    EXPECT_EQ(run({"--steps", "3", "--verify", "--force"}), ExitCode::run_failed);
    EXPECT_THAT(out.str(), Not(HasSubstr("images/s")));
    EXPECT_THAT(out.str(), HasSubstr("FAILED"));
    const nearmetal::Run failed = only_run();
    EXPECT_FALSE(failed.throughput);
    EXPECT_FALSE(failed.share_of_peak);
    EXPECT_FALSE(failed.proof.verify->passed);
  }
}

TEST_F(CmdRunFailure, AnExistingReportIsRefusedBeforeTheRun) {
  folder.write("run.report.json", "precious");
  EXPECT_THROW(run({"--steps", "3"}), OutputError);
  EXPECT_EQ(loaded, "") << "nothing was started";
  EXPECT_EQ(content_of(report_path), "precious");
  EXPECT_EQ(run({"--steps", "3", "--force"}), ExitCode::ok);
  EXPECT_EQ(report().status, Status::complete);
}

TEST_F(CmdRunFailure, AFileThatAppearsMeanwhileIsKeptAndTheResultShown) {
  script.step = [this](int64_t) {
    folder.write("run.report.json", "precious");
    return StepRecord{.seconds = 0.01, .loss = 1};
  };
  EXPECT_THROW(run({"--steps", "3"}), OutputError);
  EXPECT_EQ(content_of(report_path), "precious");
  EXPECT_THAT(err.str(), HasSubstr("images/s")) << "the summary is not lost";
}

TEST_F(CmdRunFailure, WhatTheDeviceRefusesIsAWrongSetting) {
  script.on_prepare = [] { throw std::invalid_argument("this CPU has no bf16"); };
  EXPECT_THROW(run({"--precision", "bf16"}), std::invalid_argument);
  EXPECT_FALSE(std::filesystem::exists(report_path));
}

TEST_F(CmdRunFailure, ImagesTooSmallForABatchOfOne) {
  EXPECT_THROW(run({"--batch", "1", "--image-size", "32"}), std::invalid_argument);
  EXPECT_EQ(loaded, "");
  EXPECT_EQ(run({"--batch", "2", "--image-size", "32", "--steps", "3"}), ExitCode::ok);
}

TEST_F(CmdRunFailure, AGpuThatIsNotAsExpectedIsRefusedBeforeTraining) {
  EXPECT_THROW(run({"--steps", "1", "--expect-gpu", "H100"}), NotAsExpected);
  EXPECT_EQ(script.enqueued, 0);
}

TEST_F(CmdRunFailure, AMachineThatIsNotAsExpectedIsRefusedBeforeTraining) {
  const Maybe<MachineKind> machine = find_environment().virtualisation.machine;
  for (const MachineKind expected : {MachineKind::vm, MachineKind::bare_metal}) {
    // One that cannot be told from another is not as expected either.
    if (machine && *machine == expected) continue;
    EXPECT_THROW(run({"--steps", "1", "--expect-environment", to_string(expected)}), NotAsExpected);
  }
  EXPECT_EQ(script.enqueued, 0);
  if (!machine) return;
  EXPECT_EQ(run({"--steps", "1", "--expect-environment", to_string(*machine)}), ExitCode::ok);
}

TEST(CmdRunFailureCode, AMachineThatIsNotAsExpectedIsNoWrongUsage) {
  const NotAsExpected error(FailureCode::expect_gpu, "");
  EXPECT_EQ(exit_code_of(error), ExitCode::not_as_expected);
}

TEST_F(CmdRunFailure, PlansOfAReportThatHasNoneAreRefused) {
  run({"--steps", "3"});
  EXPECT_THROW(run({"--plans", report_path.string(), "--force"}), std::invalid_argument);
  EXPECT_THROW(run({"--plans", "/nonexistent", "--force"}), InvalidReport);
}

TEST_F(CmdRunFailure, ADeviceThatDoesNotAnswerIsNotSupported) {
  struct Broken : FakeBackend {
    using FakeBackend::FakeBackend;
    DeviceInfo describe(int) override { throw std::runtime_error("the driver is too old"); }
  } broken(script);
  try {
    run({"--device", "cuda", "--output", report_path.string()}, broken);
    FAIL();
  } catch (const NotSupported& error) {
    EXPECT_THAT(error.what(), HasSubstr("the driver is too old"));
    EXPECT_THAT(error.what(), HasSubstr("--device cpu"));
  }
}

}  // namespace
}  // namespace nearmetal
