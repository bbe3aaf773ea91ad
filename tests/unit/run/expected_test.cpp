#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "base/errors.h"
#include "bench/cli/run_request.h"
#include "bench/environment/system_files.h"
#include "bench/run/rank_facts.h"
#include "comm/layout/layout_json.h"
#include "tests/support/refusal.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;

constexpr const char* mig_uuid_of_test = "MIG-00000000-0000-0000-0000-000000000001";

Gpu mig_device() {
  Gpu gpu;
  gpu.name = "NVIDIA H200 MIG 1g.18gb";
  gpu.uuid = std::string(mig_uuid_of_test);
  gpu.mig_profile = std::string("1g.18gb");
  return gpu;
}

Gpu vgpu() {
  Gpu gpu;
  gpu.name = "GRID A100-40C";
  gpu.virtualisation = std::string("vgpu");
  gpu.vgpu_profile = std::string("A100-40C");
  return gpu;
}

// The complaint about a rank on this GPU; empty: all is as expected.
std::string said(const Gpu& gpu, const Expectation& expected) {
  Environment environment;
  environment.host_name = "here";
  return refusal_of([&] { require_expected(expected, environment, &gpu); });
}

TEST(Expected, OfAMigDeviceProfileAndUuid) {
  EXPECT_EQ(said(mig_device(), {.uuid = mig_uuid_of_test, .mig = "1g.18gb"}), "");
  EXPECT_EQ(said(mig_device(), {.mig = "3g.71gb"}),
            "--expect-mig 3g.71gb: host here has given this rank a MIG device 1g.18gb");
  EXPECT_THAT(said(mig_device(), {.uuid = "MIG-other"}), HasSubstr(mig_uuid_of_test));
  Gpu whole;
  whole.name = "NVIDIA H200";
  whole.mig_profile = Unknown{"it is no MIG device"};
  EXPECT_THAT(said(whole, {.mig = "1g.18gb"}), HasSubstr("the whole of an NVIDIA H200"));
}

TEST(Expected, OfCpusAllThatWerePlanned) {
  const std::string own = to_cpu_list(usable_cpus());
  EXPECT_EQ(said({}, {.cpus = own}), "");
  EXPECT_THAT(said({}, {.cpus = own + ",9999"}),
              HasSubstr("host here has only CPUs " + own + " for this rank: "));
}

TEST(Expected, OfAVgpuModeAndProfile) {
  EXPECT_EQ(said(vgpu(), {.vgpu = "A100-40C"}), "");
  EXPECT_EQ(said(vgpu(), {.vgpu = "A100-20C"}),
            "--expect-vgpu A100-20C: host here has a vGPU A100-40C");
  Gpu passthrough = vgpu();
  passthrough.virtualisation = std::string("passthrough");
  EXPECT_THAT(said(passthrough, {.vgpu = "A100-40C"}), HasSubstr("no vGPU"));
  passthrough.virtualisation = Unknown{"no NVML"};
  EXPECT_THAT(said(passthrough, {.vgpu = "A100-40C"}), HasSubstr("no NVML"));
}

TEST(Expected, ARankOnCpusHasNoGpu) {
  Environment environment;
  environment.host_name = "here";
  for (const Expectation& expected :
       {Expectation{.gpu = "H200"}, Expectation{.uuid = "GPU-1"}, Expectation{.mig = "1g.18gb"},
        Expectation{.vgpu = "A100-40C"}}) {
    EXPECT_THROW(require_expected(expected, environment, nullptr), std::invalid_argument);
  }
}

// A machine with an interface of 10 Gbit/s, and one whose driver tells nothing.
Environment with_links() {
  Environment environment;
  environment.host_name = "here";
  for (const char* name : {"eth0", "virtio0", "eth1"}) {
    NetworkInterface& one = environment.network.emplace_back();
    one.name = name;
    one.state = std::string("up");
  }
  environment.network[0].bits_per_second = int64_t{10'000'000'000};
  environment.network[1].bits_per_second = Unknown{"the driver does not report its speed"};
  environment.network[2].bits_per_second = int64_t{25'000'000'000};
  environment.network[2].state = std::string("down");
  return environment;
}

std::string said_of_link(const Environment& environment, const std::string& link) {
  try {
    require_expected({.link = expected_link(link)}, environment, nullptr);
  } catch (const NotAsExpected& error) {
    EXPECT_EQ(error.code, FailureCode::expect_link);
    return error.what();
  }
  return "";
}

TEST(Expected, OfALinkTheRate) {
  Environment environment = with_links();
  EXPECT_EQ(said_of_link(environment, "10G"), "");
  EXPECT_EQ(
      said_of_link(environment, "25G"),
      "--expect-link 25G: host here has eth0 of 10 Gbit/s, virtio0 of unknown rate: the "
      "driver does not report its speed; claim no link here, or take a device that reports its "
      "rate");
  environment.network[1].bits_per_second = int64_t{1'000'000'000};
  EXPECT_EQ(said_of_link(environment, "25G"),
            "--expect-link 25G: host here has eth0 of 10 Gbit/s, virtio0 of 1 Gbit/s");
  RdmaPort& port = environment.rdma.emplace_back().ports.emplace_back();
  port.state = std::string("active");
  port.bits_per_second = int64_t{400'000'000'000};
  EXPECT_EQ(said_of_link(environment, "400G"), "");
  EXPECT_THAT(said_of_link(environment, "10G,240.1.2.0/24"),
              HasSubstr("has no network interface with an address in 240.1.2.0/24"))
      << "it is reserved: no machine is in it";
  EXPECT_EQ(
      said_of_link(environment, "10G,127.0.0.0/8"),
      "--expect-link 10G,127.0.0.0/8: host here has lo of unknown rate: it was not read; claim "
      "no link here, or take a device that reports its rate");
  EXPECT_THAT(said_of_link({}, "10G"), HasSubstr("has no network interface that is up"));
}

TEST(Expected, ALinkIsALayoutsClaim) {
  const auto with_rate = [](const std::string& rate) {
    return R"({"layouts": [{"shape": "1x1x1", "expect": {"link": {"rate": ")" + rate + "\"}}}]}";
  };
  for (const char* rate : {"10G", "100M", "2.5G", "1.6T"}) {
    EXPECT_EQ(layout_from_json(with_rate(rate)).layouts[0].expect.link->rate, rate);
  }
  EXPECT_EQ(bits_per_second_of("2.5G"), 2'500'000'000);
  EXPECT_EQ(bits_per_second_of("100M"), 100'000'000);
  for (const char* rate : {"", "10", "10g", "0G", "-1G", "10 G", "1e3G", "10Gb"}) {
    EXPECT_THROW(layout_from_json(with_rate(rate)), std::invalid_argument) << rate;
    EXPECT_THROW(expected_link(rate), std::invalid_argument) << rate;
  }
  EXPECT_EQ(expected_link("10G,10.0.0.0/24").network, "10.0.0.0/24");
  EXPECT_EQ(expected_link("10G,fd00:77::/64").network, "fd00:77::/64");
  for (const char* network : {"eth0", "10.0.0.0/33", "fd00::/129", "fd00:::/64", "fd00::", ":/0"}) {
    EXPECT_THROW(expected_link(std::string("10G,") + network), std::invalid_argument) << network;
  }
}

}  // namespace
}  // namespace nearmetal
