#include "bench/environment/leave_out_host_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reports/json/json.h"
#include "tests/support/sample_report.h"

namespace nearmetal {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

TEST(HostInfo, IsLeftOutWhereverItIsWritten) {
  Report report = sample_report();
  Environment& environment = report.environments[0];
  environment.host_name = "vm17.customer.example";
  environment.boot_id = std::string("boot-secret");
  environment.gpus[0].uuid = std::string("GPU-secret-uuid");
  environment.gpus[0].serial = std::string("serial-secret");
  environment.variables = {{"CUDA_VISIBLE_DEVICES", "GPU-secret"},
                           {"OMPI_MCA_orte_hnp_uri", "1.0;tcp://10.1.2.3:99"},
                           {"NCCL_HOSTID", "0x1234"},
                           {"NCCL_SOCKET_IFNAME", "vm17-ib0"},
                           {"NCCL_DEBUG", "INFO"}};
  environment.host_facts = {{"host_serial", "serial-secret-2"}, {"acs", "off"}};
  report.arms[0].runs[0].warnings = {
      {.code = "some", .text = "slow on vm17", .rank = 1, .host = "vm17.customer.example"}};
  report.arms[0].runs[0].ranks[0].monitoring->reasons = {
      {.code = "unknown", .subject = "cpu_hertz", .why = "vm17 tells none"}};
  report.invocation.argv = {"/home/secret/nearmetal",
                            "run",
                            "--output=/home/secret/o.json",
                            "--plan-cache",
                            "/home/secret/.cache/plans.json",
                            "/",
                            "--batch=8"};
  RunConfig& config = report.invocation.config;
  config.output = "/home/secret/o.json";
  config.plan_cache = "/home/secret/.cache/plans.json";
  config.plans = "relative/p.json";
  const std::string settings = config_sha256(config);
  report.arms[0].runs[0].warnings.push_back(
      {"plan_cache", "/home/secret/.cache/plans.json cannot be written"});
  leave_out_host_info(report);
  const std::string text = to_json(report);
  EXPECT_THAT(report.invocation.argv,
              testing::ElementsAre("nearmetal", "run", "--output=o.json", "--plan-cache",
                                   "plans.json", "(left out)", "--batch=8"));
  EXPECT_EQ(*config.output, "o.json");
  EXPECT_EQ(*config.plan_cache, "plans.json");
  EXPECT_EQ(*config.plans, "relative/p.json");
  EXPECT_EQ(config_sha256(config), settings) << "what is computed stays the same";
  EXPECT_EQ(report.arms[0].runs[0].warnings.back().text, "plans.json cannot be written");
  for (const char* secret : {"vm17", "secret", "10.1.2.3", "0x1234"}) {
    EXPECT_EQ(text.find(secret), text.npos) << secret;
  }
  EXPECT_EQ(report.environments[0].variables.at("NCCL_DEBUG"), "INFO");
  EXPECT_EQ(report.environments[0].host_facts.at("acs"), "off");
  EXPECT_THAT(report.environments[0].gpus[0].uuid.reason, HasSubstr("--no-host-info"));
  EXPECT_NO_THROW(report_from_json(text));
}

TEST(HostInfo, AddressesOfRdmaPortsAreLeftOutAndTheirTypesStay) {
  Report report = sample_report();
  const std::string gid = "fe80:0000:0000:0000:a288:c203:00ab:cdef";
  Environment& environment = report.environments[0];
  environment.rdma[0].interfaces = {"enxa288c2abcdef", "ib0"};
  environment.rdma[0].ports[0].gids = {
      {3, gid, std::string("RoCE v2"), std::string("enxa288c2abcdef")}};
  environment.nccl_topology_file = std::string("/home/secret/hgx.xml");
  leave_out_host_info(report);
  const std::string text = to_json(report);
  // With what no hash of a build has, as it may have "a288" by chance.
  for (const char* secret : {"a288:", ":a288", "enxa288", "secret"}) {
    EXPECT_EQ(text.find(secret), text.npos) << secret;
  }
  const RdmaDevice& device = report.environments[0].rdma[0];
  EXPECT_THAT(device.interfaces, testing::ElementsAre("(left out)", "ib0"));
  EXPECT_EQ(*device.ports[0].gids[0].type, "RoCE v2");
  EXPECT_EQ(*report.environments[0].nccl_topology_file, "hgx.xml");
  EXPECT_NO_THROW(report_from_json(text));
}

// The text as a report of that host keeps it.
std::string told_of(const std::string& host, const std::string& text) {
  Report report = sample_report();
  report.environments[0].host_name = host;
  report.environments[0].host_facts = {{"text", text}};
  Run& run = report.arms[0].runs[0];
  run.status = report.status = Status::partial;
  run.failure = text;
  run.warnings = {{"some", text}};
  leave_out_host_info(report);
  EXPECT_EQ(*report.arms[0].runs[0].failure, report.arms[0].runs[0].warnings[0].text);
  EXPECT_EQ(*report.arms[0].runs[0].failure, report.environments[0].host_facts.at("text"));
  return *report.arms[0].runs[0].failure;
}

TEST(HostInfo, AddressesAreLeftOut) {
  for (const char* address :
       {"10.1.2.3", "10.0.0.0/24", "fd00::2", "fe80::a:1/64", "::1", "2001:db8:0:0:0:0:0:7",
        "52:54:00:ab:CD:ef", "52-54-00-ab-cd-ef", "enx525400abcdef",
        "fe:80:00:00:00:00:00:01:50:6b:4b:03:00:a1:b2:c3:00:11:22:33",
        "GPU-0a1b2c3d-0011-2233-4455-66778899aabb", "0A1B2C3D-0011-2233-4455-66778899AABB"}) {
    EXPECT_EQ(told_of("vm17", "to [" + std::string(address) + "]: lost"), "to [(left out)]: lost");
  }
}

TEST(HostInfo, WhatIsNoAddressStays) {
  for (const char* text :
       {"driver 580.159.04, cuDNN 9.14.0", "std::bad_alloc", "0000:18:00.0 at 12:30:59",
        "2026-11-23T10:00:00Z", "CPUs 0-15,32-47", "enxt, 1.5 GB/s, 5 %"}) {
    EXPECT_EQ(told_of("vm17", text), text);
  }
}

TEST(HostInfo, HostNamesAreLeftOutInAnyCaseAndOnlyAsWords) {
  EXPECT_EQ(told_of("VM17", "vm17:4711, Vm17.customer.example, vm17-ib0, vm170"),
            "(left out):4711, (left out), (left out)-ib0, vm170");
  EXPECT_EQ(told_of("vm17.customer.example", "vm17 and vm18.customer.example"),
            "(left out) and vm18.(left out)");
  EXPECT_EQ(told_of("a", "a bandwidth of a100"), "(left out) bandwidth of a100");
}

TEST(HostInfo, LongTextsAreSearched) {
  const std::string tail(200'000, 'a');
  EXPECT_THAT(told_of("vm17", "vm17." + tail + " vm17:4711"), EndsWith(" (left out):4711"));
}

TEST(HostInfo, HostileHostNamesAreLeftOut) {
  for (const std::string host : {"run", "nearmetal", "complete", "cuda", "null", "0", "(x)+[", "$1",
                                 "a|b", "\\w", "ue\u0308", "x.y.z", "-", "left", "conv1", "H200"}) {
    EXPECT_THAT(told_of(host, "host <" + host + ":4711>"), Not(HasSubstr("<" + host))) << host;
  }
}

TEST(HostInfo, HostFactsAreLeftOutByNamesInAnyCase) {
  Report report = sample_report();
  report.environments[0].host_facts = {
      {"Host Name", "secret"}, {"UUID", "secret"}, {"SerialNumber", "secret"}, {"ACS", "off"}};
  leave_out_host_info(report);
  EXPECT_THAT(to_json(report), Not(HasSubstr("secret")));
  EXPECT_EQ(report.environments[0].host_facts.at("ACS"), "off");
}

TEST(HostInfo, HostsOfALayoutAreLeftOutAndItsArmsStayApart) {
  Report report = sample_report();
  report.arms.push_back(report.arms[0]);
  report.arms[0].name = "one GPU of vm17";
  report.arms[1].name = "one GPU of vm18";
  report.arms[1].speedup = ArmSpeedup{.against = "one GPU of vm17"};
  report.environments[0].host_facts = {{"rack of vm17", "4"}};
  leave_out_host_info(report, {"vm17", "vm18", "", "localhost"});
  EXPECT_EQ(report.arms[1].speedup->against, "one GPU of (left out)");
  EXPECT_EQ(report.environments[0].host_facts.at("rack of (left out)"), "4");
  EXPECT_EQ(report.arms[0].name, "one GPU of (left out)");
  EXPECT_EQ(report.arms[1].name, "one GPU of (left out) (2)");
}

}  // namespace
}  // namespace nearmetal
