#include "bench/sweep/make_launch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "comm/launch/launch_plan_text.h"
#include "reports/json/json.h"
#include "reports/json/json_writer.h"
#include "tests/support/sample_report.h"
#include "tests/support/temporary_folder.h"

namespace nearmetal {
namespace {

TEST(MakePlan, ASweepOfOtherPinnedPlansIsAnother) {
  const TemporaryFolder folder;
  Report report = sample_report();
  const auto hash = [&] {
    PlanRequest request;
    request.layouts = {"1x1x1"};
    request.hosts = "vm0:1";
    request.workload.config = report.invocation.config;
    request.workload.config.plan_cache.reset();
    request.workload.config.plans = folder.write("plans.json", to_json(report));
    request.workload.given = {"precision", "batch", "image_size", "classes", "plans"};
    return plan_sha256(make_launch_plan(request));
  };
  const std::string first = hash();
  nearmetal::Run& run = report.arms[0].runs[0];
  KernelChoice& plan = run.kernel_choices.at(0);
  plan.seconds *= 2;
  EXPECT_EQ(hash(), first) << "the same kernels, timed again";
  plan.implementation = "another";
  run.ranks[0].kernel_choices_sha256 = kernel_choices_sha256(run.kernel_choices);
  EXPECT_NE(hash(), first);
}

TEST(MakePlan, MoreRepeatsAreTheSameSweep) {
  const auto hash = [](int64_t repeats, const char* layout = "1x1x1") {
    PlanRequest request;
    request.layouts = {layout};
    request.hosts = "vm0:2";
    request.repeats = repeats;
    return plan_sha256(make_launch_plan(request));
  };
  EXPECT_EQ(hash(3), hash(8));
  EXPECT_NE(hash(3), hash(3, "1x1x2"));
}

TEST(MakePlan, KnowsTheFilesThatItIsMadeOf) {
  PlanRequest request;
  request.layouts = {"dell_vms"};
  request.mig_config = "mig.yaml#balanced";
  LaunchPlan plan = make_launch_plan(request);
  plan.file.layouts.at(0).executable = "/old/nearmetal";
  const std::vector<std::string> files = files_of(plan, request);
  for (const std::string& file : {layout_place("dell_vms"), std::string("mig.yaml"),
                                  std::string("/old/nearmetal"), *plan.file.launcher.program}) {
    EXPECT_NE(std::ranges::find(files, file), files.end()) << file;
  }
}

TEST(MakeLaunchPlan, AMissingLayoutIsAFileOrAMisspeltShortForm) {
  const auto refusal = [](const char* word) -> std::string {
    try {
      return layout_place(word);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
  };
  EXPECT_THAT(refusal("1x1xbanana"), testing::HasSubstr("expected after '1x1x'"));
  for (const char* word : {"1x1x2.json", "2025", "x1", "dell"}) {
    EXPECT_THAT(refusal(word), testing::HasSubstr("it cannot be read")) << word;
  }
}

TEST(MakeLaunchPlan, AWayToSumIsChosenByOneJobOfASweep) {
  const auto plan = [](const char* layout, Starter starter = Starter::sweep) {
    PlanRequest request;
    request.layouts = {layout};
    request.hosts = "vm0:4";
    request.workload.config.all_reduce = AllReduceKind::automatic;
    request.workload.given = {"all_reduce"};
    request.starter = starter;
    return make_launch_plan(request);
  };
  EXPECT_EQ(plan("1x1x4").workloads.at(0).config.all_reduce, AllReduceKind::automatic);
  EXPECT_NO_THROW(plan("4*(1x1x1)")) << "nothing is summed";
  EXPECT_THAT([&] { plan("2*(1x1x2)"); },
              testing::ThrowsMessage<std::invalid_argument>(testing::HasSubstr(
                  "--all-reduce auto: it times one job alone, and this layout has 2; name nccl or "
                  "host")));
  EXPECT_EQ(plan("1x1x2", Starter::script).workloads.at(0).config.all_reduce,
            AllReduceKind::automatic);
}

TEST(MakeLaunchPlan, ALimitOfTheCommandLineStandsOverThatOfTheFile) {
  PlanRequest request;
  request.layouts = {"1x1x1"};
  request.hosts = "localhost:0";
  EXPECT_EQ(make_launch_plan(request).file.limits.job_seconds, 1800);
  request.job_seconds = 7200;
  EXPECT_EQ(make_launch_plan(request).file.limits.job_seconds, 7200);
}

LaunchPlan two_of_four_gpus() {
  PlanRequest request;
  request.layouts = {"1x1x2"};
  request.hosts = "a:4";
  return make_launch_plan(request);
}

TEST(MakeLaunchPlan, TextAndJsonSayWhyGpusWereChosen) {
  LaunchPlan plan = two_of_four_gpus();
  const std::string sha = plan_sha256(plan);
  EXPECT_EQ(json::Json::parse(plan_json(plan))["layouts"][0]["chosen"], json::Json::array());
  plan.file.hosts[0].places = {{{1}}, {{0}}, {}, {}};
  const std::string choice = "GPUs 0, 1 of a: NVLink connects them all";
  EXPECT_EQ(json::Json::parse(plan_json(plan))["layouts"][0]["chosen"],
            json::Json::array({choice}));
  std::ostringstream text;
  print_plan(text, plan);
  EXPECT_THAT(text.str(), testing::HasSubstr("\nchosen: " + choice + "\n"));
  EXPECT_THAT(choices_of(plan), testing::ElementsAre("1x1x2: chosen: " + choice));
  EXPECT_EQ(plan_sha256(plan), sha) << "the same GPUs, and so the same sweep";
  plan.file.layouts[0].shape.reset();
  EXPECT_TRUE(choices_of(plan, 0).empty()) << "the file named them";
}

TEST(MakeLaunchPlan, JsonNamesTheRanksThatAreNoPeers) {
  LaunchPlan plan = two_of_four_gpus();
  EXPECT_EQ(json::Json::parse(plan_json(plan))["findings"], json::Json::array());
  plan.file.hosts[0].found.assign(4, {"NVIDIA A100-20C"});
  const json::Json findings = json::Json::parse(plan_json(plan))["findings"];
  ASSERT_EQ(findings.size(), 1);
  EXPECT_EQ(findings[0]["code"], "vgpu_peers_part");
  EXPECT_EQ(findings[0]["severity"], "warning");
}

}  // namespace
}  // namespace nearmetal
