#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "comm/layout/layout_json.h"
#include "tests/support/refusal_of_layout.h"
#include "tests/support/sample_hosts.h"

namespace nearmetal {
namespace {

using testing::StartsWith;

// Two jobs on one GPU, with these members more.
std::string two_jobs(const std::string& share, const std::string& first,
                     const std::string& second) {
  const std::string instance = R"("instances": [{"host": "a", "gpus": [0]}], "share": )" + share;
  return R"({"hosts": [{"name": "a", "gpus": 1}], "layouts": [{"name": "l", "jobs": [{)" +
         instance + first + "}, {" + instance + second + "}]}]}";
}

constexpr const char* slices = R"({"way": "timeslice"})";

TEST(LayoutJobs, WhoDisturbsOthersSharesWithThemAtOnce) {
  const auto disturbed = [](const std::string& share, const std::string& first = "") {
    return two_jobs(share, first, R"(, "workload": {"stress": "pcie"})");
  };
  EXPECT_EQ(layout_from_json(disturbed(slices)).layouts[0].jobs[1].stress, NeighbourLoad::pcie);
  const std::string place = "/layouts/0/jobs/1/workload/stress: ";
  EXPECT_THAT(refusal_of_layout(disturbed(R"({"way": "serial"})")),
              StartsWith(place + "a job that disturbs others shares with them"));
  EXPECT_THAT(refusal_of_layout(disturbed(slices, R"(, "workload": {"stress": "copy"})")),
              StartsWith("/layouts/0/jobs/0/workload/stress: there is no job that trains"));
  EXPECT_THAT(refusal_of_layout(disturbed(slices, R"(, "workload": {"stress": "noise"})")),
              StartsWith("/layouts/0/jobs/0/workload/stress must be copy, compute or pcie"));
  EXPECT_THAT(refusal_of_layout(two_jobs(slices, "", R"(, "workload": {"stress": "pcie",
                                                                        "model": "vgg16"})")),
              StartsWith(place + "a job that disturbs trains nothing; leave model out"));
}

TEST(LayoutJobs, ANeighbourMayBeBesideTheWorkloadAsInEarlierFiles) {
  const LayoutFile file = layout_from_json(two_jobs(slices, "", R"(, "stress": "pcie")"));
  EXPECT_EQ(file.layouts[0].jobs[1].stress, NeighbourLoad::pcie);
  EXPECT_THAT(refusal_of_layout(
                  two_jobs(slices, "", R"(, "stress": "pcie", "workload": {"stress": "copy"})")),
              StartsWith("/layouts/0/jobs/1/workload/stress: the job says it beside its workload"));
}

TEST(LayoutJobs, JobsHaveWorkloadsOfTheirOwn) {
  const LayoutFile file = layout_from_json(
      two_jobs(slices, R"(, "workload": {"model": "vgg16", "batch": 8, "forward_only": true})",
               R"(, "workload": {})"));
  EXPECT_THAT(
      file.layouts[0].jobs[0].workload.texts,
      testing::UnorderedElementsAre(testing::Pair("model", "vgg16"), testing::Pair("batch", "8"),
                                    testing::Pair("forward_only", "true")));
  EXPECT_THAT(file.layouts[0].jobs[1].workload.texts, testing::IsEmpty());
  EXPECT_THAT(refusal_of_layout(two_jobs(slices, R"(, "workload": {"batch": [1]})", "")),
              StartsWith("/layouts/0/jobs/0/workload/batch must be a text, a number"));
}

TEST(LayoutJobs, AnInstanceThatNamesNothingTakesWhatItsHostHas) {
  LayoutFile file = layout_from_json(R"({"layouts": [
      {"name": "open", "jobs": [{"instances": [{"host": "a"}]}, {"instances": [{"host": "b"}]}]},
      {"name": "named", "jobs": [{"instances": [{"host": "a", "gpus": [1]}]}]}]})");
  Host gpus = host("a", 4);
  gpus.visible_gpus = {2, 3};
  file.hosts = {gpus, host("b", 0)};
  file.layouts = fill_in_instances(file.layouts, file.hosts);
  const std::vector<Job>& jobs = file.layouts[0].jobs;
  EXPECT_THAT(jobs[0].instances[0].gpus, testing::ElementsAre(2));
  EXPECT_EQ(jobs[0].instances[0].ranks, 0);
  EXPECT_EQ(jobs[1].instances[0].ranks, 1);
  EXPECT_TRUE(file.layouts[0].portable);
  EXPECT_FALSE(file.layouts[1].portable);
  EXPECT_THAT(file.layouts[1].jobs[0].instances[0].gpus, testing::ElementsAre(1));
}

}  // namespace
}  // namespace nearmetal
