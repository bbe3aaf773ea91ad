#include "bench/sweep/layout_workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reports/document/settings.h"
#include "tests/support/parse_options.h"
#include "tests/support/refusal.h"
#include "tests/support/sample_hosts.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Texts = std::map<std::string, std::string>;

struct Asked {
  Texts of_file{};
  Texts of_layout{};
  std::vector<std::string> flags{};
  Host host = nearmetal::host("a", 2);
};

Workload workload(const Asked& asked) {
  LayoutFile file;
  file.hosts = {asked.host};
  file.workload.texts = asked.of_file;
  Layout layout = listed({Job{{{"a", {0, 1}, 0}}}});
  layout.source = "/layouts/0";
  layout.workload.texts = asked.of_layout;
  const RunRequest request = parse_run_flags(asked.flags);
  return layout_workloads(file, layout, place(layout, file.hosts), request);
}

std::string refusal(const Asked& asked) {
  return refusal_of([&] { workload(asked); });
}

TEST(LayoutWorkload, LaterOnesOverrideEarlierOnes) {
  const Workload asked = workload({.of_file = {{"batch", "64"}, {"seed", "2"}, {"verify", "true"}},
                                   .of_layout = {{"batch", "32"}, {"verify", "false"}},
                                   .flags = {"--precision=bf16", "--batch=16"}});
  EXPECT_THAT(run_arguments(asked),
              ElementsAre("run", "--device=cuda", "--seed=2", "--precision=bf16", "--batch=16"));
  EXPECT_EQ(asked.config.batch, 16);
  EXPECT_FALSE(asked.config.verify);
  EXPECT_EQ(asked.config.warmup, 120) << "defaults are filled";
}

TEST(LayoutWorkload, OneLengthOverridesTheOther) {
  const Workload steps = workload({.of_file = {{"duration", "1m"}}, .flags = {"--steps=3"}});
  EXPECT_THAT(run_arguments(steps), ElementsAre("run", "--device=cuda", "--steps=3"));
  EXPECT_EQ(steps.config.duration_seconds, RunConfig{}.duration_seconds);
  const Workload duration = workload({.of_file = {{"steps", "3"}}, .flags = {"--duration=1m"}});
  EXPECT_THAT(run_arguments(duration), ElementsAre("run", "--device=cuda", "--duration=60s"));
  EXPECT_EQ(duration.config.steps, std::nullopt);
  EXPECT_THAT(refusal({.of_file = {{"steps", "3"}, {"duration", "1m"}}}), HasSubstr("--duration"));
}

TEST(LayoutWorkload, PlansOfAReportAndAPlanCacheReplaceEachOther) {
  const Workload pinned =
      workload({.of_file = {{"plan_cache", "cache.json"}}, .flags = {"--plans=base.json"}});
  EXPECT_EQ(pinned.config.plans, "base.json");
  EXPECT_EQ(pinned.config.plan_cache, std::nullopt);
  EXPECT_THAT(run_arguments(pinned), ElementsAre("run", "--device=cuda", "--plans=base.json"));
  const Workload tuned = workload({.of_file = {{"plans", "base.json"}},
                                   .of_layout = {{"seed", "2"}},
                                   .flags = {"--plan-cache=off"}});
  EXPECT_EQ(tuned.config.plans, std::nullopt);
  EXPECT_EQ(tuned.config.plan_cache, "off");
  EXPECT_THAT(refusal({.of_file = {{"plans", "a"}, {"plan_cache", "off"}}}),
              HasSubstr("leave --plan-cache out"));
}

TEST(LayoutWorkload, ABatchOfAllRanksIsShared) {
  EXPECT_EQ(workload({.of_file = {{"global_batch", "64"}}}).config.batch, 32);
  EXPECT_THAT(refusal({.of_layout = {{"global_batch", "3"}}}),
              HasSubstr("/layouts/0/workload/global_batch"));
}

TEST(LayoutWorkload, WhatAHostIsClaimedToBeIsNoChoiceOfTheUser) {
  Host vm = host("a", 2);
  vm.environment = MachineKind::vm;
  const Workload claimed = workload({.host = vm});
  EXPECT_EQ(claimed.config.environment, MachineKind::vm);
  EXPECT_THAT(claimed.given, ElementsAre("device"));
  EXPECT_THAT(refusal({.flags = {"--environment=bare-metal"}, .host = vm}),
              HasSubstr("leave --environment=bare-metal out"));
}

TEST(LayoutWorkload, WhatNoWorkloadHasIsRefusedWithItsPlace) {
  EXPECT_EQ(refusal({.of_file = {{"device", "cpu"}}}),
            "/workload/device is no setting of a workload: the plan sets --device itself");
  EXPECT_EQ(refusal({.of_layout = {{"nonsense", "1"}}}),
            "/layouts/0/workload/nonsense is no setting of a workload: `nearmetal run` has no "
            "--nonsense");
  EXPECT_EQ(refusal({.of_file = {{"verify", "1"}}}), "/workload/verify must be true or false");
}

// The settings of a job, the second of two on a GPU each, of three ranks in all.
struct AskedOfJob {
  Texts of_job{};
  Asked other{};
};

Workload workload(const AskedOfJob& asked) {
  LayoutFile file;
  file.hosts = {host("a", 3)};
  file.workload.texts = asked.other.of_file;
  Layout layout = listed({Job{{{"a", {0}, 0}}}, Job{{{"a", {1, 2}, 0}}}});
  layout.workload.texts = asked.other.of_layout;
  layout.jobs[1].workload.texts = asked.of_job;
  return layout_workloads(file, layout, place(layout, file.hosts),
                          parse_run_flags(asked.other.flags))
      .of_jobs.at(1);
}

std::string refusal(const AskedOfJob& asked) {
  return refusal_of([&] { workload(asked); });
}

TEST(JobWorkload, OverridesThatOfItsLayoutAndTheCommandLineOverridesIt) {
  const Workload found = workload({.of_job = {{"model", "resnet18"}, {"forward_only", "true"}},
                                   .other = {.of_file = {{"model", "resnet34"}, {"seed", "2"}},
                                             .of_layout = {{"model", "resnet50"}, {"batch", "8"}},
                                             .flags = {"--batch=4"}}});
  EXPECT_EQ(found.config.model, "resnet18");
  EXPECT_TRUE(found.config.forward_only);
  EXPECT_EQ(found.config.batch, 4);
  EXPECT_EQ(found.config.seed, 2);
  EXPECT_LT(*found.config.learning_rate, 0.1) << "defaults follow its own model and batch";
}

TEST(JobWorkload, ABatchOfAllRanksIsThatOfTheJob) {
  EXPECT_EQ(workload({.of_job = {{"global_batch", "64"}}}).config.batch, 32);
  EXPECT_THAT(refusal({.of_job = {{"global_batch", "5"}}}),
              testing::StartsWith("/layouts/0/jobs/1/workload/global_batch: 5 samples cannot be"));
}

TEST(JobWorkload, WhatIsWrongIsRefusedWithItsPlace) {
  const std::string place = "/layouts/0/jobs/1/workload";
  EXPECT_EQ(refusal({.of_job = {{"nonsense", "1"}}}),
            place + "/nonsense is no setting of a workload: `nearmetal run` has no --nonsense");
  EXPECT_EQ(refusal({.of_job = {{"threads", "1"}}}),
            place + ": --threads is for CPUs; leave it out with --device cuda");
  for (const char* name :
       {"verify", "profile", "attribute", "digest", "no_host_info", "plan_cache"}) {
    EXPECT_EQ(refusal({.of_job = {{name, "true"}}}),
              place + "/" + name +
                  ": it holds for all jobs of a layout; put it into the workload of the layout or "
                  "of the file");
  }
  EXPECT_THAT(
      refusal({.of_job = {{"forward_only", "true"}}, .other = {.of_layout = {{"verify", "true"}}}}),
      testing::StartsWith(place + ": --verify trains"));
}

}  // namespace
}  // namespace nearmetal
