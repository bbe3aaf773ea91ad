#include <cmath>
#include <limits>

#include "bench/cli/process.h"
#include "reports/json/kernel_cache.h"
#include "tests/support/cmd_run_fixture.h"

namespace nearmetal {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

TEST_F(CmdRun, MeasuresAndReports) {
  EXPECT_EQ(run({"--steps", "40", "--batch", "8", "--plan-cache", "off"}), ExitCode::ok);
  EXPECT_EQ(loaded, "cpu");
  const Report read = report();
  EXPECT_EQ(read.status, Status::complete);
  EXPECT_EQ(read.exit_code, 0);
  EXPECT_EQ(read.environments.at(0).libraries.at("fakelib"), "1.2");
  EXPECT_EQ(read.invocation.origins.at("batch"), Origin::flag);
  const nearmetal::Run measured = read.arms.at(0).runs.at(0);
  EXPECT_EQ(measured.window->steps, 40);
  EXPECT_EQ(measured.window->samples, 320);
  EXPECT_NEAR(measured.window->seconds, 0.4, 1e-12);
  EXPECT_NEAR(*measured.throughput, 800, 1e-9);
  EXPECT_EQ(measured.window->first_step, measured.warm_up->steps);
  EXPECT_NEAR(*measured.flops_per_second, 800 * measured.flops_per_sample, 1);
  EXPECT_FALSE(measured.share_of_peak);
  EXPECT_EQ(measured.ranks.at(0).step_seconds.size(),
            static_cast<size_t>(measured.warm_up->steps) + 40);
  EXPECT_GT(measured.ranks.at(0).set_up->total_seconds, 0);
  EXPECT_THAT(out.str(), HasSubstr("800.00 images/s"));
  EXPECT_THAT(err.str(), HasSubstr("device cpu (asked for)"));
  EXPECT_THAT(err.str(), HasSubstr(report_path.string()));
}

TEST_F(CmdRun, HandsTheSettingsToTheProgram) {
  run({"--steps", "3", "--batch", "8", "--precision", "bf16", "--learning-rate", "0.5",
       "--momentum", "0.8", "--weight-decay", "0.01", "--threads", "3", "--forward-only"});
  EXPECT_EQ(script.options.batch_size, 8);
  EXPECT_EQ(script.options.precision, Precision::bf16);
  EXPECT_EQ(script.options.optimizer.learning_rate, 0.5);
  EXPECT_EQ(script.options.optimizer.momentum, 0.8);
  EXPECT_EQ(script.options.optimizer.weight_decay, 0.01);
  EXPECT_EQ(script.options.threads, 3);
  EXPECT_TRUE(script.options.forward_only);
  EXPECT_EQ(script.restarts, 1) << "seeded parameters";
  EXPECT_FALSE(only_run().proof.window_start_gradient_norm);
}

TEST_F(CmdRun, InferenceHasLogitsAndLatencyInPlaceOfALoss) {
  EXPECT_EQ(run({"--inference", "--steps", "3", "--batch", "8"}), ExitCode::ok);
  EXPECT_TRUE(script.options.forward_only);
  const nearmetal::Run measured = only_run();
  EXPECT_EQ(measured.ranks.at(0).latency->steps, 1000);
  EXPECT_GT(*measured.ranks.at(0).latency->p99_seconds, 0);
  EXPECT_EQ(measured.proof.outputs_finite, true);
  EXPECT_FALSE(measured.proof.window_end_loss);
  EXPECT_THAT(measured.ranks.at(0).loss, testing::IsEmpty());
  EXPECT_THAT(out.str(), HasSubstr(" inference, fp32"));
  EXPECT_THAT(out.str(), HasSubstr("of 1000 steps one at a time"));
  EXPECT_THAT(out.str(), Not(HasSubstr("loss")));
}

TEST_F(CmdRun, InferenceFailsWhoseOutputsAreNotFinite) {
  script.logits = {1, std::numeric_limits<float>::infinity()};
  EXPECT_EQ(run({"--inference", "--steps", "3"}), ExitCode::run_failed);
  EXPECT_EQ(only_run().failure, "the outputs of the network are not finite, or all the same");
  EXPECT_FALSE(only_run().throughput);
  script.logits = {0, 0};
  EXPECT_EQ(run({"--inference", "--steps", "3", "--force"}), ExitCode::run_failed);
}

TEST_F(CmdRun, OnlyInferenceHasLatency) {
  run({"--forward-only", "--steps", "3"});
  EXPECT_EQ(only_run().ranks.at(0).latency.reason, "not inference");
  EXPECT_EQ(only_run().proof.outputs_finite, std::nullopt);
}

TEST_F(CmdRun, ShareOfPeakWhereThePeakIsKnown) {
  script.device.peak_flops_per_second = {{Precision::fp32, 1e15}};
  run({"--steps", "3"});
  const nearmetal::Run measured = only_run();
  EXPECT_NEAR(*measured.share_of_peak, *measured.flops_per_second / 1e15, 1e-12);
  EXPECT_THAT(out.str(), HasSubstr("of the peak of 1000 TFLOP/s"));
}

TEST_F(CmdRun, WarnsOfKernelsThatWereRefused) {
  script.kernel_choices = {{"fused a", "own", 1e-3, 1e-4},
                           {"fused b", "refused", 0, 0},
                           {"conv c", "none", 0, 0},
                           {"fused d", "refused", 0, 0}};
  EXPECT_EQ(run({"--device", "cuda", "--steps", "3", "--plan-cache", "off"}), ExitCode::ok);
  EXPECT_THAT(only_run().warnings,
              Contains(Warning{"kernels_refused",
                               "a kernel gave a wrong result and was left out, "
                               "which costs speed ('fused b' and 1 more): report this as a bug, "
                               "with the report"}));
}

TEST_F(CmdRun, ShowsQuantilesOfEnoughSteps) {
  const auto step_time_of = [&](const std::string& steps) {
    out.str("");
    run({"--steps", steps, "--force"});
    const std::string shown = out.str();
    const size_t at = shown.find("step time");
    return shown.substr(at, shown.find('\n', at) - at);
  };
  EXPECT_THAT(step_time_of("19"), Not(HasSubstr("p9")));
  EXPECT_THAT(step_time_of("20"), AllOf(HasSubstr("p95"), Not(HasSubstr("p99"))));
  EXPECT_THAT(step_time_of("100"), AllOf(HasSubstr("p95"), HasSubstr("p99")));
}

TEST_F(CmdRun, JsonLeavesStdoutToTheReport) {
  EXPECT_EQ(run({"--steps", "3", "--json"}), ExitCode::ok);
  EXPECT_EQ(to_json(report_from_json(out.str())), out.str());
  EXPECT_EQ(out.str(), content_of(report_path)) << "with --output in both places";
}

TEST_F(CmdRun, QuietSaysNothing) {
  run({"--steps", "3", "--quiet"});
  EXPECT_EQ(err.str(), "");
  EXPECT_THAT(out.str(), HasSubstr("images/s"));
}

TEST_F(CmdRun, BatchAutoTakesAMultipleOf32WithRoomToSpare) {
  script.largest_batch = 97;
  EXPECT_EQ(run({"--device", "cuda", "--batch", "auto", "--steps", "3"}), ExitCode::ok);
  EXPECT_EQ(script.options.batch_size, 96);
  EXPECT_EQ(report().invocation.config.batch, 96);
  EXPECT_DOUBLE_EQ(*report().invocation.config.learning_rate, 96.0 / 64 / 512);
  EXPECT_EQ(report().invocation.config.loss_scale->initial, 64);
}

TEST_F(CmdRun, BatchAutoTakesNoTensorOf2To31Elements) {
  script.largest_batch = 3529;
  EXPECT_EQ(run({"--device", "cuda", "--batch", "auto", "--steps", "3"}), ExitCode::ok);
  EXPECT_EQ(script.options.batch_size, 2656) << "64 x 112 x 112 elements an image";
  EXPECT_THAT(err.str(), HasSubstr("batches of up to 3529 fit; taking 2656, as larger ones"));
}

TEST_F(CmdRun, BatchAutoTakesASmallOneAsItIs) {
  script.largest_batch = 5;
  EXPECT_EQ(run({"--device", "cuda", "--batch", "auto", "--steps", "3"}), ExitCode::ok);
  EXPECT_EQ(script.options.batch_size, 5);
}

TEST_F(CmdRun, DriftOverTheWindowIsAWarning) {
  script.step = [](int64_t step) {
    return StepRecord{.seconds = step < 20 ? 0.010 : 0.011, .loss = 1};
  };
  run({"--steps", "40"});
  EXPECT_THAT(warning_codes(), testing::Contains("drift"));
}

TEST_F(CmdRun, VerifyPassesWhenTheNetworkLearns) {
  EXPECT_EQ(run({"--steps", "3", "--batch", "20", "--verify"}), ExitCode::ok);
  const Verify verify = only_run().proof.verify.value();
  EXPECT_TRUE(verify.passed);
  EXPECT_EQ(verify.samples, 16);
  EXPECT_EQ(script.fixed_batch_labels, 20) << "the batch is filled";
  EXPECT_EQ(script.restarts, 2);
  EXPECT_NEAR(verify.bound, std::log(1000) / 2, 1e-12);
  EXPECT_EQ(script.learning_rate, 0.01) << "not that of the run";
  EXPECT_EQ(verify.steps, 9) << "7 - 0.5 n falls below 3.45 at the ninth step";
}

TEST_F(CmdRun, TheProfileIsComparedWithTheRoofline) {
  script.profile = {.entries = {{"conv1", Phase::forward, "fast conv", 0.004, 2e9, 1e6},
                                {"bn1", Phase::forward, "sweep", 0.003, 0, 4e6}},
                    .copy_bytes_per_second = 2e9,
                    .matrix_flops_per_second = 1e12};
  EXPECT_EQ(run({"--steps", "3", "--profile"}), ExitCode::ok);
  const StepProfile profile = only_run().profile.value();
  EXPECT_NEAR(profile.sum_seconds, 0.007, 1e-15);
  EXPECT_NEAR(*profile.roofline_seconds, 0.002 + 0.002, 1e-15);
  EXPECT_NEAR(*profile.share_of_roofline, 0.4, 1e-12);
  EXPECT_THAT(out.str(), HasSubstr("fast conv"));
  EXPECT_THAT(out.str(), HasSubstr("40.0 % of the step"));
}

TEST_F(CmdRun, WithoutCeilingsTheRooflineIsUnknown) {
  script.profile.entries = {{"conv1", Phase::forward, "conv", 0.004, 2e9, 1e6}};
  EXPECT_EQ(run({"--steps", "3", "--profile"}), ExitCode::ok);
  EXPECT_FALSE(only_run().profile->roofline_seconds);
}

TEST_F(CmdRun, ATenfoldFallIsAWarning) {
  script.step = [](int64_t step) {
    const float fall = step < 10 ? 1.0f : 0.05f;
    return StepRecord{.seconds = 0.01, .loss = 7 * fall, .gradient_norm = fall};
  };
  run({"--steps", "40"});
  EXPECT_THAT(warning_codes(), testing::IsSupersetOf({"falling_loss", "vanishing_gradient"}));
}

TEST_F(CmdRun, OneSmallGradientAtTheEndIsNoFall) {
  for (const int64_t small : {0, 1}) {
    script.step = [small](int64_t step) {
      return StepRecord{.seconds = 0.01, .loss = 1, .gradient_norm = step % 2 == small ? 0.01f : 1};
    };
    run({"--steps", "40", "--force"});
    EXPECT_THAT(warning_codes(), testing::Not(testing::Contains("vanishing_gradient")));
  }
}

TEST_F(CmdRun, SkippedUpdatesAreCounted) {
  script.step = [](int64_t step) {
    const bool skipped = step % 13 == 0;
    return StepRecord{.seconds = 0.01,
                      .loss = 1,
                      .gradient_norm = skipped ? INFINITY : 1,
                      .update_skipped = skipped};
  };
  run({"--steps", "34"});
  EXPECT_EQ(only_run().ranks.at(0).skipped_updates, 3);
  EXPECT_FALSE(only_run().proof.window_end_gradient_norm) << "so was that of step 39";
  EXPECT_THAT(out.str(), HasSubstr("3 of 34 updates were skipped"));
}

TEST_F(CmdRun, PlansAreKeptAndPinned) {
  const auto cache = folder / "cache/plans.json";
  script.kernel_choices = {{"conv1", "eng1", 1e-3, 0}};
  EXPECT_EQ(run({"--steps", "3", "--plan-cache", cache.string()}), ExitCode::ok);
  EXPECT_TRUE(script.options.kernel_choices.empty());
  std::vector<Warning> warnings;
  EXPECT_EQ(
      load_kernel_choices(cache, kernel_choice_context(script.device, build_info()), warnings),
      script.kernel_choices);
  EXPECT_EQ(only_run().kernel_choices, script.kernel_choices);

  EXPECT_EQ(run({"--steps", "3", "--plan-cache", cache.string(), "--force"}), ExitCode::ok);
  EXPECT_EQ(script.options.kernel_choices, script.kernel_choices);
  EXPECT_FALSE(script.options.kernel_choices_pinned);

  const auto pinned = folder / "pinned.json";
  std::filesystem::copy(report_path, pinned);
  EXPECT_EQ(run({"--steps", "3", "--plans", pinned.string(), "--force"}), ExitCode::ok);
  EXPECT_EQ(script.options.kernel_choices, script.kernel_choices);
  EXPECT_TRUE(script.options.kernel_choices_pinned);
}

TEST_F(CmdRun, ADamagedCacheIsAWarning) {
  const auto cache = folder.write("plans.json", "garbage");
  EXPECT_EQ(run({"--steps", "3", "--plan-cache", cache.string()}), ExitCode::ok);
  EXPECT_THAT(warning_codes(), testing::Contains("plan_cache").Times(1));
  EXPECT_THAT(out.str(), HasSubstr("is ignored"));
}

}  // namespace
}  // namespace nearmetal
