#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "bench/run/rank_facts.h"

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

// What is said of a rank on this GPU; empty: all is as expected.
std::string said(const Gpu& gpu, const Expected& expected) {
  Environment environment;
  environment.host_name = "here";
  try {
    require_expected(expected, environment, &gpu);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
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
  for (const Expected& expected : {Expected{.gpu = "H200"}, Expected{.uuid = "GPU-1"},
                                   Expected{.mig = "1g.18gb"}, Expected{.vgpu = "A100-40C"}}) {
    EXPECT_THROW(require_expected(expected, environment, nullptr), std::invalid_argument);
  }
}

}  // namespace
}  // namespace nearmetal
