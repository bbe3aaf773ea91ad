#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "base/errors.h"
#include "comm/launch/launch_plan.h"
#include "comm/layout/gpu_profiles.h"
#include "comm/layout/gpu_shares.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::string uuid(int number) {
  return "MIG-00000000-0000-0000-0000-00000000000" + std::to_string(number);
}

// One H200 with MIG devices of these profiles, as the driver of this machine tells.
Host divided(const std::vector<std::string>& profiles) {
  Host host;
  host.name = "a";
  host.gpus = 1;
  for (const std::string& profile : profiles) {
    host.mig.push_back({0, uuid(static_cast<int>(host.mig.size())), profile});
  }
  host.found = {{"NVIDIA H200"}};
  return host;
}

Job job(const std::optional<std::string>& profile,
        const std::optional<std::string>& instance = {}) {
  Job job{{{"a", {0}, 0}}};
  job.share = Share{.mode = SharingMode::mig, .profile = profile, .instance = instance};
  return job;
}

Layout layout_of_jobs(std::vector<Job> jobs) {
  Layout layout;
  layout.name = "by MIG";
  layout.jobs = std::move(jobs);
  layout.source = "/layouts/0";
  return layout;
}

std::vector<std::string> devices(const Placement& placement) {
  std::vector<std::string> uuids;
  for (const PlacedJob& placed : placement.jobs) uuids.push_back(placed.ranks.at(0).mig->uuid);
  return uuids;
}

// The message of the error of this kind that is thrown; "another" or "nothing".
template <class Error>
std::string thrown_for(const std::vector<Job>& jobs, const Host& host) {
  try {
    place(layout_of_jobs(jobs), {host});
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another: ") + error.what();
  }
  return "nothing";
}

TEST(MigPlacement, EachJobHasADeviceOfItsOwn) {
  const Host host = divided({"1g.18gb", "3g.71gb", "1g.18gb", "2g.35gb"});
  const Placement placement =
      place(layout_of_jobs({job({}), job("3g.71gb"), job("1g.18gb"), job({}, uuid(0))}), {host});
  EXPECT_THAT(devices(placement), ElementsAre(uuid(3), uuid(1), uuid(2), uuid(0)))
      << "named ones first, then profiles, then any";
  const PlacedRank& rank = placement.jobs[1].ranks[0];
  EXPECT_EQ(rank.variables.at("CUDA_VISIBLE_DEVICES"), uuid(1));
  EXPECT_EQ(rank.variables.at("CUDA_MPS_PIPE_DIRECTORY"), "/dev/null");
  EXPECT_EQ(rank.gpu, 0);
  EXPECT_EQ(rank.visible_gpu, 0);
  EXPECT_EQ(rank.mig->profile, "3g.71gb");
}

TEST(MigPlacement, RanksOfAJobSeeOneDeviceEach) {
  Host host = divided({"1g.18gb"});
  host.gpus = 2;
  host.mig.push_back({1, uuid(5), "1g.18gb"});
  Job both = job("1g.18gb");
  both.instances[0].gpus = {0, 1};
  const Placement placement = place(layout_of_jobs({both}), {host});
  const auto& ranks = placement.jobs.at(0).ranks;
  EXPECT_EQ(ranks.at(0).variables.at("CUDA_VISIBLE_DEVICES"), uuid(0));
  EXPECT_EQ(ranks.at(1).variables.at("CUDA_VISIBLE_DEVICES"), uuid(5));
  EXPECT_EQ(ranks.at(1).visible_gpu, 0);
}

TEST(MigPlacement, RanksGetTheDeviceThatTheyMustFind) {
  LaunchPlan plan;
  plan.file.hosts = {divided({"1g.18gb", "3g.71gb"})};
  plan.placements = {place(layout_of_jobs({job("1g.18gb"), job("3g.71gb")}), plan.file.hosts)};
  plan.workloads.resize(1);
  plan.file.layouts.resize(1);
  const auto commands = commands_of(plan, 0);
  EXPECT_THAT(commands.at(1),
              testing::IsSupersetOf({std::string("--expect-mig=3g.71gb"),
                                     "--expect-uuid=" + uuid(1), std::string("--sharers=2")}));
  EXPECT_THAT(commands.at(1), testing::Not(testing::Contains("--through-mps")));
}

TEST(MigPlacement, AMissingDeviceIsNamedWithTheCommandsThatMakeIt) {
  const Host some = divided({"1g.18gb", "3g.71gb"});
  EXPECT_THAT(thrown_for<NotSupported>({job("1g.18gb"), job("1g.18gb")}, some),
              testing::AllOf(StartsWith("/layouts/0/jobs/1/share: there is no MIG device 1g.18gb"),
                             HasSubstr("it has: 1g.18gb, 3g.71gb"),
                             HasSubstr("nvidia-smi mig -i 0 -cgi 1g.18gb -C"), HasSubstr("-dgi")));
  Host off = divided({});
  off.found[0].no_mig = "MIG is off";
  EXPECT_THAT(thrown_for<NotSupported>({job("1g.18gb"), job("3g.71gb")}, off),
              HasSubstr("MIG is off on GPU 0 of 'a'; it has: none; an administrator makes what the "
                        "layout needs: nvidia-smi -i 0 -mig 1, then nvidia-smi mig -i 0 -cgi "
                        "1g.18gb,3g.71gb -C"));
  EXPECT_THAT(thrown_for<NotSupported>({job({}), job({}), job({})}, off),
              HasSubstr("-cgi 2g.35gb,2g.35gb,2g.35gb -C"));
  EXPECT_THAT(thrown_for<NotSupported>({job({}, uuid(7))}, some),
              HasSubstr("no MIG device " + uuid(7)));
  EXPECT_THAT(thrown_for<NotSupported>({job({}, uuid(0)), job("1g.18gb")}, some),
              HasSubstr("nvidia-smi mig -i 0 -cgi 1g.18gb -C"))
      << "another job has the one that is there";
}

TEST(MigPlacement, WhatCannotBeIsRefused) {
  const Host host = divided({"1g.18gb", "1g.18gb"});
  EXPECT_THAT(
      thrown_for<std::invalid_argument>({job("1g.6gb")}, host),
      HasSubstr("no profile 1g.6gb on an NVIDIA H200; it has 1g.18gb, 1g.18gb+me, 1g.35gb"));
  EXPECT_THAT(thrown_for<std::invalid_argument>({job({}, uuid(0)), job({}, uuid(0))}, host),
              HasSubstr("another job has " + uuid(0)));
  Host elsewhere = divided({});
  elsewhere.found.clear();
  EXPECT_THAT(thrown_for<std::invalid_argument>({job({})}, elsewhere),
              HasSubstr("list its MIG devices"));
  EXPECT_THAT(thrown_for<std::invalid_argument>({job("1g.18gb")}, elsewhere),
              HasSubstr("'a' is not this machine"));
  EXPECT_EQ(thrown_for<NotSupported>({job({}, uuid(3))}, elsewhere), "nothing")
      << "its rank finds out";
}

TEST(MigPlacement, OfFractionsTakesEvenDevicesWhereItCan) {
  const auto names = [](const Host& host, int64_t jobs) {
    std::string text;
    for (const Layout& layout : fraction_layouts(host, {.jobs = jobs})) {
      if (layout.jobs[0].share->mode == SharingMode::mig) text += layout.name + "; ";
    }
    return text;
  };
  EXPECT_EQ(names(divided({"1g.18gb", "1g.18gb", "3g.71gb", "2g.35gb"}), 2),
            "2 jobs, MIG 1g.18gb; alone, MIG 1g.18gb; ");
  EXPECT_EQ(names(divided({"1g.18gb", "3g.71gb", "1g.18gb"}), 3),
            "3 jobs, MIG 3g.71gb + 1g.18gb + 1g.18gb; alone, MIG 1g.18gb; alone, MIG 3g.71gb; ");
  EXPECT_EQ(names(divided({"1c.2g.35gb", "1g.18gb", "1c.2g.35gb", "1g.18gb"}), 2),
            "2 jobs, MIG 1c.2g.35gb; 2 jobs, MIG 1g.18gb; alone, MIG 1c.2g.35gb; alone, MIG "
            "1g.18gb; ")
      << "two compute instances of one GPU instance, and two of two";
  EXPECT_EQ(names(divided({"1g.18gb"}), 2), "");
  EXPECT_EQ(no_mig_reason(divided({"1g.18gb", "1g.18gb"}), 2), std::nullopt);
  EXPECT_THAT(*no_mig_reason(divided({"1g.18gb"}), 2),
              HasSubstr("there are: 1g.18gb; an administrator makes 2 even ones: nvidia-smi mig -i "
                        "0 -dci, -dgi, then nvidia-smi mig -i 0 -cgi 3g.71gb,3g.71gb -C"));
  EXPECT_THAT(*no_mig_reason(divided({}), 8), HasSubstr("no 8 MIG devices"));
  Host second = divided({"1g.18gb", "1g.18gb"});
  second.gpus = 2;
  second.found.push_back(second.found[0]);
  second.visible_gpus = {1};
  EXPECT_THAT(*no_mig_reason(second, 2), HasSubstr("nvidia-smi mig -i 1 -cgi"))
      << "those of GPU 0 are another's";
  Host without = divided({});
  without.found = {{"", "no NVML: not found"}};
  EXPECT_EQ(no_mig_reason(without, 2), "no NVML: not found");
}

TEST(MigPlacement, FractionsThatAreMissingAreNamedAsThoseThatAreThere) {
  const auto first_by_mig = [](const Fractions& fractions) {
    for (const Layout& layout : fraction_layouts(divided({"1g.18gb", "1g.18gb"}), fractions)) {
      if (layout.jobs[0].share->mode == SharingMode::mig) return layout.name;
    }
    return std::string();
  };
  const Fractions even{.jobs = 2},
      beside{.jobs = 2, .neighbours = {NeighbourLoad::copy, NeighbourLoad::pcie}};
  EXPECT_THAT(fraction_names(even), ElementsAre("2 jobs, "));
  EXPECT_THAT(fraction_names(beside), ElementsAre("1 job, 1 copy, ", "1 job, 1 pcie, "));
  EXPECT_THAT(first_by_mig(even), StartsWith(fraction_names(even)[0] + "MIG "));
  EXPECT_THAT(first_by_mig(beside), StartsWith(fraction_names(beside)[0] + "MIG "));
}

TEST(MigProfiles, AreThoseOfTheBoard) {
  const auto first = [](const char* gpu) {
    const auto profiles = mig_profiles_of(gpu);
    return profiles.empty() ? "" : std::string(profiles.front().name) + " " + profiles.back().name;
  };
  EXPECT_EQ(first("NVIDIA A30"), "1g.6gb 4g.24gb");
  EXPECT_EQ(first("NVIDIA A100-SXM4-40GB"), "1g.5gb 7g.40gb");
  EXPECT_EQ(first("NVIDIA A100-PCIE-40GB"), "1g.5gb 7g.40gb");
  EXPECT_EQ(first("NVIDIA A100 80GB PCIe"), "1g.10gb 7g.80gb");
  EXPECT_EQ(first("NVIDIA H100 80GB HBM3"), "1g.10gb 7g.80gb");
  EXPECT_EQ(first("NVIDIA H100 PCIe"), "1g.10gb 7g.80gb");
  EXPECT_EQ(first("NVIDIA H100 NVL"), "1g.12gb 7g.94gb");
  EXPECT_EQ(first("NVIDIA GH200 480GB"), "1g.12gb 7g.96gb");
  EXPECT_EQ(first("NVIDIA GH200 144G HBM3e"), "") << "not known";
  EXPECT_EQ(first("NVIDIA H200"), "1g.18gb 7g.141gb");
  EXPECT_EQ(first("NVIDIA B200"), "");
  for (const char* gpu :
       {"NVIDIA A30", "NVIDIA A100-SXM4-40GB", "NVIDIA H100 NVL", "NVIDIA H200"}) {
    const bool small = std::string(gpu).ends_with("A30");
    for (const MigProfile& profile : mig_profiles_of(gpu)) {
      EXPECT_TRUE(is_mig_profile(profile.name)) << profile.name;
      EXPECT_LE(profile.most * profile.compute_slices, small ? 4 : 7) << profile.name;
      EXPECT_LE(profile.most * profile.memory_slices, small ? 4 : 8) << profile.name;
    }
  }
  EXPECT_STREQ(largest_equal_profile("NVIDIA H200", 4)->name, "1g.35gb");
  EXPECT_STREQ(largest_equal_profile("NVIDIA A30", 2)->name, "2g.12gb");
  EXPECT_EQ(largest_equal_profile("NVIDIA A30", 5), nullptr);
  EXPECT_EQ(no_such_profile("1c.3g.71gb", "NVIDIA H200"), std::nullopt) << "not in the tables";
  EXPECT_EQ(no_such_profile("9g.9gb", "NVIDIA B200"), std::nullopt) << "the board is not known";
}

TEST(MigProfiles, NamesAreRead) {
  for (const char* name : {"1g.5gb", "7g.141gb", "1g.10gb+me", "1c.3g.20gb", "1g.24gb+gfx",
                           "1g.24gb-me", "1g.12gb+me.all", "1g.24gb+me,gfx"}) {
    EXPECT_TRUE(is_mig_profile(name)) << name;
  }
  for (const char* name : {"", "1g", "1g.0gb", "8g.80gb", "1g.5GB", "1g.5gb ", "-1g.5gb",
                           "1g.5gb\n", "1g.5gb+x", "MIG 1g.5gb"}) {
    EXPECT_FALSE(is_mig_profile(name)) << name;
  }
  EXPECT_EQ(mig_profile_in("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb"), "1c.3g.20gb");
  EXPECT_EQ(mig_profile_in("NVIDIA H200"), std::nullopt);
  EXPECT_TRUE(is_mig_uuid(uuid(1)));
  EXPECT_FALSE(is_mig_uuid("GPU-00000000-0000-0000-0000-000000000001"));
}

TEST(VgpuProfile, NamesAreRead) {
  EXPECT_EQ(parse_vgpu_profile("A100-40C"), (VgpuProfile{"A100", {}}));
  EXPECT_EQ(parse_vgpu_profile("A100-3-20C"), (VgpuProfile{"A100", 3}));
  EXPECT_EQ(parse_vgpu_profile("H100XM-1-10CME"), (VgpuProfile{"H100XM", 1}));
  EXPECT_EQ(parse_vgpu_profile("RTX6000-Ada-48Q")->board, "RTX6000-Ada");
  for (const char* name :
       {"", "A100", "A100-C", "A100-0C", "A100-40", "A100-40CX", "-40C", "A100-40C "}) {
    EXPECT_FALSE(parse_vgpu_profile(name)) << name;
  }
  EXPECT_EQ(vgpu_profile_in("GRID A100-40C"), "A100-40C");
  EXPECT_EQ(vgpu_profile_in("NVIDIA A100-1-5CME"), "A100-1-5CME");
  EXPECT_EQ(vgpu_profile_in("NVIDIA A100-SXM4-40GB"), std::nullopt);
}

TEST(VgpuPlacement, AVgpuIsOfOneJobAndItsProfileIsExpected) {
  Job one{{{"vm0", {0}, 0}}}, other{{{"vm1", {0}, 0}}};
  one.share = other.share = Share{.mode = SharingMode::vgpu, .profile = "A100-40C"};
  Host vm0, vm1;
  vm0.name = "vm0";
  vm1.name = "vm1";
  vm0.gpus = vm1.gpus = 1;
  LaunchPlan plan;
  plan.file.hosts = {vm0, vm1};
  plan.placements = {place(layout_of_jobs({one, other}), plan.file.hosts)};
  plan.workloads.resize(1);
  plan.file.layouts.resize(1);
  EXPECT_THAT(commands_of(plan, 0).at(1), testing::Contains("--expect-vgpu=A100-40C"));
  EXPECT_THROW(place(layout_of_jobs({one, one}), {vm0, vm1}), std::invalid_argument);
}

}  // namespace
}  // namespace nearmetal
