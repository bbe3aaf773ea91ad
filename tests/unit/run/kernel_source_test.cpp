#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.h"
#include "bench/run/prepare_device.h"
#include "reports/document/metric.h"
#include "reports/json/json.h"
#include "tests/support/sample_report.h"
#include "tests/support/temporary_folder.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Arms of these names and batches, of one run with plans each.
Report sweep_of(const std::vector<std::pair<std::string, int64_t>>& arms) {
  Report report = sample_report();
  const Arm sample = report.arms[0];
  report.arms.clear();
  for (const auto& [name, batch] : arms) {
    Arm& arm = report.arms.emplace_back(sample);
    arm.name = name;
    arm.config = report.invocation.config;
    arm.config->batch = batch;
    arm.runs[0].window.value->samples = batch * arm.runs[0].window->steps;
    set_throughput(throughput_of(*arm.runs[0].window), arm.runs[0]);
  }
  return report;
}

struct PlaceOfPlans : testing::Test {
  RunConfig config(int64_t batch, const std::string& arm = "") const {
    RunConfig config = sample_report().invocation.config;
    config.batch = batch;
    config.plans = path() + arm;
    return config;
  }
  std::string path() const { return (folder / "plans.json").string(); }
  void write(const Report& report) const { folder.write("plans.json", to_json(report)); }

  TemporaryFolder folder;
};

TEST_F(PlaceOfPlans, IsTheArmThatDidTheSameWork) {
  write(sweep_of({{"a", 64}, {"b", 32}, {"c", 32}}));
  EXPECT_EQ(place_of_kernel_choices(config(64), "x"), path() + "#a");
  EXPECT_EQ(place_of_kernel_choices(config(32), "x"), path() + "#b");
  EXPECT_EQ(place_of_kernel_choices(config(32), "c"), path() + "#c")
      << "that of the same name, if it can";
  EXPECT_EQ(place_of_kernel_choices(config(32), "a"), path() + "#b");
  EXPECT_EQ(place_of_kernel_choices(config(32, "#c"), "b"), path() + "#c") << "the user has chosen";
}

TEST_F(PlaceOfPlans, IsTheReportWhereItHasOneArm) {
  write(sample_report());
  EXPECT_EQ(place_of_kernel_choices(config(256), "1x1x1"), path());
}

TEST_F(PlaceOfPlans, IsNowhereWithoutPlansOfThatWork) {
  Report report = sweep_of({{"a", 64}, {"b", 32}});
  report.arms[1].runs[0].kernel_choices.clear();
  report.arms[1].runs[0].ranks[0].kernel_choices_sha256 = kernel_choices_sha256({});
  write(report);
  for (const RunConfig& other : {config(32), config(16), config(64, "#b")}) {
    EXPECT_THAT([&] { place_of_kernel_choices(other, "b"); },
                ThrowsMessage<std::invalid_argument>(
                    HasSubstr("holds no plans for `run --device=cuda --model=resnet50 ")));
  }
  std::vector<RunConfig> others(7, config(64));
  others[0].device = Device::cpu;
  others[1].model = "resnet18";
  others[2].precision = Precision::bf16;
  others[3].image_size = 32;
  others[4].classes = 10;
  others[5].forward_only = true;
  others[6].inference = true;
  ASSERT_EQ(place_of_kernel_choices(config(64), "a"), path()) << "the work itself";
  for (const RunConfig& other : others) {
    EXPECT_THROW(place_of_kernel_choices(other, "a"), std::invalid_argument);
  }
  EXPECT_THAT(
      [&] { place_of_kernel_choices(config(largest_that_fits), "a"); },
      ThrowsMessage<std::invalid_argument>(HasSubstr("--plans needs a number for --batch")));
  RunConfig missing = config(64);
  missing.plans = "/nonexistent";
  EXPECT_THROW(place_of_kernel_choices(missing, "a"), InvalidReport);
}

TEST(KernelsTimed, AreWarnedOfInJobsOfSeveralRanksUnlessTimedApart) {
  DeviceInfo device;
  device.times_kernels_apart = false;
  const std::vector<KernelChoice> choices = {{"conv a", "cudnn eng1", 1e-3, 1e-4}};
  KernelSource source;
  source.cache = "plans.json";
  EXPECT_TRUE(warnings_of_timing(source, choices, device, 1).empty());
  EXPECT_TRUE(warnings_of_timing(source, choices, DeviceInfo(), 2).empty()) << "apart";
  EXPECT_THAT(warnings_of_timing(source, choices, device, 2),
              ElementsAre(testing::AllOf(
                  Field(&Warning::code, "kernels_timed"),
                  Field(&Warning::text, testing::EndsWith("; the next run finds them chosen")))));
  source.cache.reset();
  EXPECT_THAT(warnings_of_timing(source, choices, device, 2),
              ElementsAre(Field(&Warning::text, HasSubstr("; with a plan cache the next run"))));
  source.known = {{"conv of another batch", "own", 1e-3, 1e-4}, choices[0]};
  EXPECT_TRUE(warnings_of_timing(source, choices, device, 2).empty());
}

}  // namespace
}  // namespace nearmetal
