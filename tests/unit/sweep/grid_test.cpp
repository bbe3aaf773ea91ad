#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "bench/sweep/layout_workload.h"
#include "bench/sweep/make_launch_plan.h"
#include "comm/launch/launch_plan.h"
#include "comm/launch/launch_plan_text.h"
#include "comm/layout/layout_json.h"
#include "tests/support/parse_options.h"
#include "tests/support/refusal.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

struct AskedGrid {
  std::vector<std::string> grid{};
  std::vector<std::string> flags{};
  std::vector<std::string> layouts = {"1x1x1"};
  std::string file{};  // members of a layout file, beside its layouts
};

LaunchPlan grid_plan(const AskedGrid& asked) {
  PlanRequest request;
  request.workload = parse_run_flags(asked.flags);
  request.hosts = "a:2";
  request.repeats = 2;
  for (const std::string& text : asked.grid) request.grid.push_back(grid_axis_from(text));
  if (asked.file.empty()) {
    request.layouts = asked.layouts;
  } else {
    request.file = layout_from_json(R"({"layouts": [{"shape": "1x1x1"}, {"shape": "1x1x2"}], )" +
                                    asked.file + "}");
  }
  return make_launch_plan(request);
}

std::vector<std::string> layout_names(const LaunchPlan& plan) {
  std::vector<std::string> names;
  for (const Layout& layout : plan.file.layouts) names.push_back(layout.name);
  return names;
}

std::string refusal_of_grid(const AskedGrid& asked) {
  return refusal_of([&] { grid_plan(asked); });
}

TEST(Grid, ArmsAreNamedByWhatDiffers) {
  const LaunchPlan plan =
      grid_plan({.grid = {"batch=32,64", "image-size=64", "precision=fp16,bf16"}});
  EXPECT_THAT(layout_names(plan),
              ElementsAre("batch 32, precision fp16", "batch 32, precision bf16",
                          "batch 64, precision fp16", "batch 64, precision bf16"));
  const RunConfig& config = plan.workloads.at(3).config;
  EXPECT_EQ(config.batch, 64);
  EXPECT_EQ(config.precision, Precision::bf16);
  EXPECT_EQ(config.image_size, 64) << "one value is no difference, but holds";
  EXPECT_EQ(plan.launches.size(), 8);
  EXPECT_THAT(layout_names(grid_plan({.grid = {"batch=4,8"}, .layouts = {"1x1x1", "1x1x2"}})),
              ElementsAre("1x1x1, batch 4", "1x1x1, batch 8", "1x1x2, batch 4", "1x1x2, batch 8"));
}

TEST(Grid, TheCommandLineOverridesTheFile) {
  const std::string file = R"("grid": {"batch": [2, 4], "zero_init": [true, false]})";
  EXPECT_EQ(grid_plan({.file = file}).file.layouts.size(), 8);
  const LaunchPlan plan = grid_plan({.grid = {"batch=6"}, .file = file});
  EXPECT_THAT(layout_names(plan), ElementsAre("1x1x1, zero_init true", "1x1x1, zero_init false",
                                              "1x1x2, zero_init true", "1x1x2, zero_init false"));
  EXPECT_EQ(plan.workloads.at(0).config.batch, 6);
  const LaunchPlan global = grid_plan({.grid = {"global_batch=8"}, .file = file});
  EXPECT_EQ(global.workloads.at(0).config.batch, 8);
  EXPECT_EQ(global.workloads.at(2).config.batch, 4) << "each of two ranks";
  const LaunchPlan over =
      grid_plan({.grid = {"batch=6,8"}, .file = R"("workload": {"global_batch": 2})"});
  EXPECT_EQ(over.workloads.at(2).config.batch, 6) << "over the workload, too";
}

TEST(Grid, WhatDoesNotGoTogetherIsLeftOutWithTheReason) {
  const LaunchPlan plan =
      grid_plan({.grid = {"precision=fp16,bf16,fp32"}, .flags = {"--loss-scale=128"}});
  EXPECT_THAT(layout_names(plan), ElementsAre("precision fp16"));
  ASSERT_EQ(plan.unsupported.size(), 2);
  EXPECT_EQ(plan.unsupported[0].name, "precision bf16");
  EXPECT_THAT(plan.unsupported[0].reason, HasSubstr("--loss-scale is for fp16"));
  const LaunchPlan odd = grid_plan({.grid = {"global_batch=3,4"}, .layouts = {"1x1x2", "1x1x1"}});
  EXPECT_THAT(layout_names(odd), ElementsAre("1x1x2, global_batch 4", "1x1x1, global_batch 3",
                                             "1x1x1, global_batch 4"));
  EXPECT_THAT(odd.unsupported.at(0).reason, HasSubstr("3 samples cannot be shared evenly"));
  EXPECT_THAT(refusal_of_grid({.grid = {"precision=bf16,fp32"}, .flags = {"--loss-scale=128"}}),
              HasSubstr("--loss-scale is for fp16"))
      << "nothing is left";
}

TEST(Grid, ImagesThatItsNetworkRefusesAreLeftOut) {
  const LaunchPlan plan = grid_plan({.grid = {"image-size=16,32"}, .flags = {"--model=vgg16"}});
  EXPECT_THAT(layout_names(plan), ElementsAre("image_size 32"));
  ASSERT_EQ(plan.unsupported.size(), 1);
  EXPECT_EQ(plan.unsupported[0].name, "image_size 16");
  EXPECT_THAT(plan.unsupported[0].reason, StartsWith("the image is too small for this network"));
  const LaunchPlan single = grid_plan({.grid = {"batch=1,2"}, .flags = {"--image-size=32"}});
  EXPECT_THAT(layout_names(single), ElementsAre("batch 2"));
  EXPECT_THAT(refusal_of_grid({.flags = {"--model=vgg16", "--image-size=16"}}),
              StartsWith("1x1x1: the image is too small for this network"));
}

TEST(Grid, RefusesWhatItCannotMean) {
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"batch", "'batch' is none"},
           {"=3", "'=3' is none"},
           {"batch=", "--grid batch: --batch must be an integer"},
           {"batch=2,,4", "--grid batch: --batch must be an integer"},
           {"batch=2,2", "--grid batch: it names 2 twice"},
           {"batch=2,002", "--grid batch: 2 and 002 are the same value"},
           {"global_batch=2,002", "2 and 002 are the same value"},
           {"duration=2s,2", "2s and 2 are the same value"},
           {"loss_scale=128,128.0", "128 and 128.0 are the same value"},
           {"precision=fp17", "--grid precision: --precision"},
           {"size=3", "has no --size"},
           {"Batch=3", "has no --Batch; did you mean 'batch'?"},
           {"bs=3", "has no --bs; did you mean 'batch'?"},
           {"Image-Sizes=3", "did you mean 'image_size'?"},
           {"device=cpu", "the plan sets --device itself"},
           {"zero_init=1", "--grid zero_init must be true or false"},
           {"global_batch=0", "--grid global_batch must be an integer"}}) {
    EXPECT_THAT(refusal_of_grid({.grid = {text}}), HasSubstr(message)) << text;
  }
  EXPECT_THAT(refusal_of_grid({.grid = {"batch=2", "batch=4"}}),
              HasSubstr("--grid batch says it already"));
  EXPECT_THAT(refusal_of_grid({.grid = {"batch=2", "global_batch=4"}}),
              HasSubstr("says it already"));
  EXPECT_THAT(refusal_of_grid({.grid = {"batch=2,4"}, .flags = {"--batch=8"}}),
              HasSubstr("--batch says it already"));
  EXPECT_THAT(refusal_of_grid({.grid = {"duration=2s,4s"}, .flags = {"--steps=8"}}),
              HasSubstr("--steps says it already"));
  EXPECT_THAT(
      refusal_of_grid({.file = R"("grid": {"batch": [2]}, "workload": {"global_batch": 4})"}),
      HasSubstr("/grid/batch: /workload/global_batch says it already"));
  EXPECT_THAT(refusal_of_grid({.file = R"("grid": {"batch": []})"}),
              HasSubstr("it names no value"));
  EXPECT_THAT(refusal_of_grid({.file = R"("grid": {"image-size": [32]})"}),
              HasSubstr("/grid/image-size is no setting of a workload: it is image_size here"));
  EXPECT_THAT(refusal_of_grid({.file = R"("grid": {"batch": 4})"}),
              HasSubstr("/grid/batch must be a list"));
  std::string many = "seed=0";
  for (int seed = 1; seed <= 1000; ++seed) many += "," + std::to_string(seed);
  EXPECT_THAT(refusal_of_grid({.grid = {many}}), HasSubstr("at most 1000"));
}

TEST(Grid, ALargeOneTakesFewLinesOfItsPlan) {
  std::string seeds = "seed=0";
  for (int seed = 1; seed < 240; ++seed) seeds += "," + std::to_string(seed);
  LaunchPlan plan = grid_plan({.grid = {seeds}});
  plan.launches = launch_order(240, 100, false, 1);
  std::ostringstream text;
  print_plan(text, plan);
  EXPECT_THAT(text.str(), StartsWith("grid on each layout: seed 0, 1, "));
  EXPECT_LT(text.str().find("estimated duration: "), text.str().find("layout seed 0: "));
  EXPECT_THAT(text.str(), HasSubstr("  repeat 20: seed 0, seed 1, "));
  EXPECT_THAT(text.str(),
              HasSubstr("seed 18, seed 19, 220 more\n  80 more repeats: --format json\n"));
}

TEST(Grid, ItsDurationIsEstimatedByWindowsAndStarts) {
  const LaunchPlan plan = grid_plan({.grid = {"batch=2,4"}, .flags = {"--duration=600s"}});
  const PlannedTime time = planned_time(plan, plan.launches);
  EXPECT_EQ(time.seconds(), 4 * (600 + 15));
  EXPECT_EQ(planned_time_text(time),
            "about 41 min: 4 starts one after another, taken as 15 s each with warm-up, and "
            "windows of 40 "
            "min in all; at most 2 h 0 min by the limit of a job");
  const LaunchPlan steps = grid_plan({.grid = {"batch=2,4"}, .flags = {"--steps=1000000"}});
  EXPECT_EQ(
      planned_time_text(planned_time(steps, steps.launches)),
      "unknown: 4000000 steps in all, beside 4 starts one after another, taken as 15 s each with "
      "warm-up; at least 60 s, at most 2 h 0 min by the limit of a job");
}

}  // namespace
}  // namespace nearmetal
