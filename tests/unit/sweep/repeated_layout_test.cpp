#include "bench/sweep/repeated_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "comm/layout/placement.h"
#include "tests/support/sample_report.h"

namespace nearmetal {
namespace {

// A report of ranks on hosts, in emulated VMs where `vms` says so, in jobs of so many ranks.
Report report_of(const std::vector<int64_t>& hosts, const std::vector<int64_t>& jobs = {},
                 const std::vector<int64_t>& vms = {}) {
  Report report = sample_report();
  Run& run = report.arms[0].runs[0];
  run.ranks.assign(hosts.size(), sample_rank());
  for (size_t i = 0; i < hosts.size(); ++i) {
    run.ranks[i].environment = hosts[i];
    if (!vms.empty()) run.ranks[i].vm = vms[i];
  }
  report.environments.resize(2, report.environments[0]);
  report.environments[1].host_name = "far";
  run.world_size = std::ssize(hosts);
  run.jobs.clear();
  for (const int64_t ranks : jobs) run.jobs.push_back({.ranks = ranks});
  report.arms[0].kind = vms.empty() ? Kind::measured : Kind::emulated;
  report.arms[0].share.reset();
  return report;
}

PlanRequest request_of(const Report& report, const std::string& hosts) {
  return request_of_arm(report, report.arms[0], "old.json", hosts);
}

// "HOST:GPU" of each rank, "|" between jobs.
std::string places_of(const Report& report, const std::string& hosts) {
  const LayoutFile file = request_of(report, hosts).file.value();
  std::string text;
  for (const PlacedJob& job : place(file.layouts.at(0), file.hosts).jobs) {
    if (!text.empty()) text += "| ";
    for (const PlacedRank& rank : job.ranks) {
      text += rank.host + ":" + std::to_string(*rank.gpu) +
              (rank.vm ? "/" + std::to_string(*rank.vm) : "") + " ";
    }
  }
  return text;
}

TEST(RepeatedLayout, TakesTheHostsInTheOrderOfTheReportAndTheirFirstGpus) {
  EXPECT_EQ(places_of(report_of({0, 0, 1, 1}), "a:4,b:2"), "a:0 a:1 b:0 b:1 ");
  EXPECT_EQ(places_of(report_of({1, 0}), "a:1,b:1"), "a:0 b:0 ");
  EXPECT_EQ(places_of(report_of({0, 0, 0}, {2, 1}), "a:4"), "a:0 a:1 | a:2 ");
  EXPECT_EQ(places_of(report_of({0, 0, 0, 0}, {}, {0, 0, 1, 1}), "a:4"),
            "a:0/0 a:1/0 a:2/1 a:3/1 ");
}

TEST(RepeatedLayout, RefusesOtherNumbersOfHostsAndGpus) {
  const auto refused = [](const Report& report, const std::string& hosts, const char* why) {
    EXPECT_THAT([&] { request_of(report, hosts); },
                testing::ThrowsMessage<std::invalid_argument>(testing::HasSubstr(why)));
  };
  refused(report_of({0, 1}), "a:2", "it ran on 2 hosts (");
  refused(report_of({0, 0}), "a:1", "more GPUs of a host than 'a' has: 1");
  refused(report_of({0, 0}, {2, 1}), "a:4", "does not report all ranks");
  Report not_published = report_of({0, 0}, {}, {0, 1});
  not_published.arms[0].runs[0].ranks[1].vm.reset();
  refused(not_published, "a:2", "which rank was in which VM");
}

TEST(RepeatedLayout, SharesWhatTheJobsShared) {
  Report report = report_of({0, 0}, {1, 1});
  report.arms[0].share = ArmShare{.mode = SharingMode::mps,
                                  .jobs = 2,
                                  .threads_percent = {50, 25, 25},
                                  .memory_gib = {0, 8, 0},
                                  .neighbours = {"copy"}};
  const std::vector<Job> jobs = request_of(report, "a:2").file->layouts[0].jobs;
  ASSERT_EQ(jobs.size(), 3U);
  const Share second{.mode = SharingMode::mps, .threads_percent = 25, .memory_gib = 8};
  EXPECT_EQ(jobs[1].share, second);
  EXPECT_EQ(jobs[2].stress, NeighbourLoad::copy);
  EXPECT_EQ(places_of(report, "a:2"), "a:0 | a:0 | a:0 ");
  report.arms[0].share->threads_percent = {50};
  EXPECT_THROW(request_of(report, "a:2"), std::invalid_argument);
}

TEST(RepeatedLayout, AsksForTheSameWorkAndKernels) {
  const Report one = report_of({0});
  const PlanRequest alone = request_of_arm(one, one.arms[0], "old.json#run", std::nullopt);
  EXPECT_EQ(alone.workload.config.plans, "old.json#run");
  EXPECT_TRUE(alone.workload.is_given("gpu"));
  EXPECT_FALSE(alone.workload.is_given("output"));
  EXPECT_TRUE(alone.plain_alone);
  Report launched = one;
  launched.environments[0].variables["OMPI_MCA_ess_base_jobid"] = "1077018625";
  EXPECT_FALSE(request_of(launched, "a:1").plain_alone) << "mpirun started it";
  launched = one;
  (launched.arms[0].config ? *launched.arms[0].config : launched.invocation.config).ranks = 1;
  EXPECT_FALSE(request_of(launched, "a:1").plain_alone) << "a sweep started it by mpirun";
  EXPECT_FALSE(request_of(launched, "a:1").mpi);
  launched.environments[0].variables["OMPI_MCA_pml"] = "ucx";
  EXPECT_EQ(request_of(launched, "a:1").mpi, MpiTransport::ucx);
  const PlanRequest several = request_of(report_of({0, 0}), "a:2");
  EXPECT_FALSE(several.workload.is_given("gpu")) << "of each rank its own";
  EXPECT_EQ(several.workload.config.batch, one.invocation.config.batch);
}

TEST(RequestOfArm, SumsInTheWayThatWasTaken) {
  Report report = report_of({0, 0});
  RunConfig& config = report.invocation.config;
  std::optional<Communication>& communication = report.arms[0].runs[0].communication;
  config.all_reduce = AllReduceKind::automatic;
  communication.emplace().all_reduce = AllReduceKind::host;
  EXPECT_EQ(request_of(report, "vm0:2").workload.config.all_reduce, AllReduceKind::host);
  communication.reset();
  const Workload again = request_of(report, "vm0:2").workload;
  EXPECT_EQ(again.config.all_reduce, std::nullopt);
  EXPECT_FALSE(again.is_given("all_reduce")) << "as an earlier report, where it meant the default";
}

}  // namespace
}  // namespace nearmetal
