#include "reports/json/kernel_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "base/descriptor.h"
#include "base/errors.h"
#include "models/program.h"
#include "reports/json/report_files.h"
#include "tests/support/temporary_folder.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

const KernelChoice first{"conv 64x56x56 fp16", "cudnn eng1_k2=4", 0.0001234567890123456, 1e-4};
const KernelChoice second{"bn 64x56x56", "own sweep", 0.002, 0};

std::vector<KernelChoice> known(const std::filesystem::path& path, const std::string& context) {
  std::vector<Warning> unused;
  return load_kernel_choices(path, context, unused);
}

std::vector<Warning> warnings_of(const std::filesystem::path& path, const std::string& context) {
  std::vector<Warning> warnings;
  load_kernel_choices(path, context, warnings);
  return warnings;
}

TEST(PlanCache, KeepsPlansByContext) {
  const TemporaryFolder folder;
  const auto path = folder / "deep/er/plans.json";
  save_kernel_choices(path, "one", {first});
  save_kernel_choices(path, "two", {second});
  EXPECT_THAT(known(path, "one"), UnorderedElementsAre(first));
  EXPECT_THAT(known(path, "two"), UnorderedElementsAre(second));
  EXPECT_THAT(known(path, "three"), IsEmpty());
  EXPECT_THAT(warnings_of(path, "three"), IsEmpty());
}

TEST(PlanCache, MergesByKey) {
  const TemporaryFolder folder;
  const auto path = folder / "plans.json";
  save_kernel_choices(path, "one", {first, second});
  KernelChoice better = first;
  better.implementation = "cudnn eng7";
  save_kernel_choices(path, "one", {better});
  EXPECT_THAT(known(path, "one"), UnorderedElementsAre(better, second));
}

TEST(PlanCache, ForgetsTheContextThatWasSavedLongestAgo) {
  const TemporaryFolder folder;
  const auto path = folder / "plans.json";
  save_kernel_choices(path, "0", {first});
  for (int build = 1; build < 16; ++build) {
    save_kernel_choices(path, std::to_string(build), {first});
  }
  save_kernel_choices(path, "0", {second});
  save_kernel_choices(path, "new", {first});
  EXPECT_THAT(known(path, "0"), UnorderedElementsAre(first, second));
  EXPECT_THAT(known(path, "1"), IsEmpty());
  EXPECT_THAT(known(path, "2"), UnorderedElementsAre(first));
  EXPECT_THAT(known(path, "new"), UnorderedElementsAre(first));
}

// A time that is lost changes what is fused.
TEST(PlanCache, OtherProcessesGetAllOfEachPlan) {
  EXPECT_THAT(kernel_choices_from_json(kernel_choices_to_json({first, second})),
              testing::ElementsAre(first, second));
  EXPECT_THAT(kernel_choices_from_json(kernel_choices_to_json({})), IsEmpty());
  EXPECT_THROW(kernel_choices_from_json("{"), InvalidReport);
}

TEST(PlanCache, NoFileIsNoWarning) {
  EXPECT_THAT(known("/nonexistent/plans.json", "one"), IsEmpty());
  EXPECT_THAT(warnings_of("/nonexistent/plans.json", "one"), IsEmpty());
}

TEST(PlanCache, WhatIsSomethingElseIsRefused) {
  const TemporaryFolder folder;
  for (const char* other : {"[]", "{}", R"({"schema": "nearmetal/report"})", R"({"schema": 1})"}) {
    const auto path = folder.write("other.json", other);
    EXPECT_THROW(known(path, "one"), std::invalid_argument) << other;
    EXPECT_THROW(save_kernel_choices(path, "one", {first}), std::invalid_argument) << other;
    EXPECT_EQ(file_text(path), other);
  }
}

TEST(PlanCache, DamagedFilesAreIgnoredWithOneWarningAndReplaced) {
  const TemporaryFolder folder;
  const std::string plan =
      R"({"key": "k", "implementation": "i", "seconds": 1, "relative_error": 0})";
  const auto document = [](const std::string& schema, const std::string& version,
                           const std::string& plans) {
    return R"({"schema": ")" + schema + R"(", "schema_version": ")" + version +
           R"(", "contexts": [{"context": "one", "plans": [)" + plans + "]}]}";
  };
  const auto good = folder.write("good.json", document("nearmetal/plans", "1.0", plan));
  EXPECT_EQ(known(good, "one").size(), 1u) << "the fixture itself";
  for (const std::string& damaged :
       {std::string(), std::string("{"), document("nearmetal/plans", "1.0", plan).substr(0, 90),
        document("nearmetal/plans", "2.0", plan), document("nearmetal/plans", "1.0", "7"),
        document("nearmetal/plans", "1.0", R"({"key": "k"})")}) {
    const auto path = folder.write("plans.json", damaged);
    EXPECT_THAT(known(path, "one"), IsEmpty()) << damaged.substr(0, 100);
    const std::vector<Warning> warnings = warnings_of(path, "one");
    ASSERT_EQ(warnings.size(), 1) << damaged.substr(0, 100);
    EXPECT_THAT(warnings[0].text, HasSubstr("plans.json is ignored")) << damaged.substr(0, 100);
    EXPECT_THAT(warnings[0].text, Not(HasSubstr("\n")));
    save_kernel_choices(path, "one", {first});
    EXPECT_THAT(known(path, "one"), UnorderedElementsAre(first));
  }
}

TEST(PlanCache, WhatDoesNotBeginAsACacheIsLeftAlone) {
  const TemporaryFolder folder;
  for (const std::string& other : {std::string("milk, eggs\n"), std::string("\xff\xfe"),
                                   std::string(100000, '['), std::string("{\"a\": 1")}) {
    const auto path = folder.write("notes.txt", other);
    EXPECT_EQ(warnings_of(path, "one").size(), 1) << other.substr(0, 100);
    save_kernel_choices(path, "one", {first});
    EXPECT_EQ(content_of(path), other);
  }
  EXPECT_EQ(warnings_of(folder.path(), "one").size(), 1) << "a folder";
  EXPECT_NO_THROW(save_kernel_choices(folder.path(), "one", {first}));
}

TEST(PlanCache, ProcessesAtOnceLoseNothing) {
  const TemporaryFolder folder;
  const auto path = folder / "plans.json";
  constexpr int processes = 6;
  constexpr int plans_each = 5;
  for (int process = 0; process < processes; ++process) {
    if (fork() != 0) continue;
    for (int plan = 0; plan < plans_each; ++plan) {
      const std::string key = std::to_string(process) + "/" + std::to_string(plan);
      save_kernel_choices(path, "one", {{key, "i", 0, 0}});
    }
    _exit(0);
  }
  for (int process = 0; process < processes; ++process) {
    int status = 0;
    wait(&status);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(known(path, "one").size(), size_t{processes * plans_each});
}

TEST(PlanCache, AFolderThatCannotBeWrittenIsAnOutputError) {
  EXPECT_THROW(save_kernel_choices("/proc/nearmetal/plans.json", "one", {first}), OutputError);
}

TEST(PlanCache, AProcessThatKeepsTheLockIsNamedInsteadOfWaitedFor) {
  const TemporaryFolder folder;
  const auto path = folder / "plans.json";
  const std::string lock = path.string() + ".lock";
  const Descriptor held(open(lock.c_str(), O_RDWR | O_CREAT, 0600));
  ASSERT_EQ(flock(held.number(), LOCK_EX), 0);
  try {
    save_kernel_choices(path, "one", {first}, 0);
    FAIL() << "it was saved";
  } catch (const OutputError& error) {
    EXPECT_EQ(error.what(), "process " + std::to_string(getpid()) + " holds the lock " + lock);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(PlanCache, TheContextNamesAllThatMatters) {
  DeviceInfo device;
  device.name = "NVIDIA H200";
  device.multiprocessors = 132;
  device.driver_version = "580.1";
  device.libraries = {{"cuDNN", "9.19"}, {"CUDA", "13.0"}};
  Tool tool;
  tool.version = "0.2.0";
  const std::string without_build =
      "NVIDIA H200, 132 multiprocessors, driver 580.1, CUDA 13.0, cuDNN 9.19, nearmetal 0.2.0";
  EXPECT_EQ(kernel_choice_context(device, tool), without_build);
  tool.build_id = "4f1c";
  EXPECT_EQ(kernel_choice_context(device, tool), without_build + " build 4f1c");
}

TEST(PlanCache, TheDefaultPathFollowsTheEnvironment) {
  const char* cache = getenv("XDG_CACHE_HOME");
  const char* home = getenv("HOME");
  const std::string old_cache = cache != nullptr ? cache : "";
  const std::string old_home = home != nullptr ? home : "";
  setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(default_kernel_cache_path(), "/cache/nearmetal/plans.json");
  setenv("XDG_CACHE_HOME", "relative", 1);  // to be ignored, says the specification
  setenv("HOME", "/home/me", 1);
  EXPECT_EQ(default_kernel_cache_path(), "/home/me/.cache/nearmetal/plans.json");
  unsetenv("XDG_CACHE_HOME");
  unsetenv("HOME");
  EXPECT_EQ(default_kernel_cache_path(), std::nullopt);
  if (cache != nullptr) setenv("XDG_CACHE_HOME", old_cache.c_str(), 1);
  if (home != nullptr) setenv("HOME", old_home.c_str(), 1);
}

}  // namespace
}  // namespace nearmetal
