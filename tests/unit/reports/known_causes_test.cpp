#include "reports/attribution/known_causes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/made_up_machine.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Two sides that are alike, for a test to change; one layer that counts.
struct KnownCauses : testing::Test {
  std::vector<std::string> codes(const std::vector<Layer>& slow) {
    std::vector<LayerShare> layers;
    for (const Layer layer : slow) {
      LayerShare share;
      share.layer = layer;
      share.seconds = 0.01;
      layers.push_back(share);
    }
    found = known_causes(base, next, layers);
    std::vector<std::string> codes;
    for (const KnownCause& cause : found) codes.push_back(cause.code);
    return codes;
  }
  Gpu& gpu() { return new_machine.gpus[0]; }

  nearmetal::Run base_run = run_on({}), new_run = run_on({});
  Environment base_machine = sample_report().environments[0];
  Environment new_machine = base_machine;
  ExplainedSide base{{&base_run}, {&base_machine}}, next{{&new_run}, {&new_machine}};
  std::vector<KnownCause> found;
};

TEST_F(KnownCauses, WhereNothingIsSeenItSaysWhereToLook) {
  EXPECT_THAT(codes({Layer::memory, Layer::cpu}), ElementsAre("not_seen", "not_seen"));
  EXPECT_EQ(found[0].layer, Layer::memory);
  EXPECT_NE(found[0].hint, found[1].hint);
}

TEST_F(KnownCauses, LayersThatDoNotCountOrSaveTimeHaveNone) {
  LayerShare hidden, noise, better, open;
  for (LayerShare* share : {&hidden, &noise, &better}) share->seconds = 0.01;
  hidden.sensitive = false;
  noise.below_noise = true;
  better.seconds = -0.01;
  open.seconds = Unknown{"not probed"};
  new_machine.usable_cpus = 0;
  EXPECT_THAT(known_causes(base, next, {hidden, noise, better, open}), IsEmpty());
}

TEST_F(KnownCauses, OfACpuThatIsEmulatedComeBeforeWhatFitsManyLayers) {
  new_machine.virtualisation.machine = MachineKind::vm;
  new_machine.virtualisation.hypervisor = std::string("kvm");
  EXPECT_THAT(codes({Layer::cpu}), ElementsAre("hypervisor"));
  new_machine.virtualisation.hypervisor = std::string("qemu");
  for (const Layer layer : {Layer::cpu, Layer::clock, Layer::compute}) {
    ASSERT_FALSE(codes({layer}).empty());
    EXPECT_EQ(found[0].code, "cpu_emulated");
    EXPECT_EQ(found[0].layer, layer);
  }
  base_machine.virtualisation = new_machine.virtualisation;
  EXPECT_THAT(codes({Layer::cpu}), ElementsAre("not_seen")) << "it is on both sides";
}

TEST_F(KnownCauses, OfCpus) {
  base_machine.usable_cpus = 8;
  new_machine.usable_cpus = 8;
  new_machine.cpu_quota = 2.5;
  EXPECT_THAT(codes({Layer::cpu}), ElementsAre("cpu_set_smaller"));
  EXPECT_THAT(found[0].seen, HasSubstr("2.50 instead of 8.00"));
  base_machine.cpu_quota = 2.5;
  EXPECT_THAT(codes({Layer::cpu}), ElementsAre("not_seen")) << "both are as small";
  new_run.ranks[0].monitoring->series = {{"cpu_steal_share", 0, 0.2, 0.4, {}},
                                         {"cpus_busy_with_others", 0, 1.1, 2, {}}};
  EXPECT_THAT(codes({Layer::cpu}), ElementsAre("steal", "other_processes"));
  EXPECT_THAT(found[0].seen, HasSubstr("20.0 %"));
  base_run.ranks[0].monitoring->series = {{"cpu_steal_share", 0, 0.18, 0.4, {}},
                                          {"cpus_busy_with_others", 0, 1.0, 2, {}}};
  EXPECT_THAT(codes({Layer::cpu}), ElementsAre("not_seen")) << "the base had it, too";
}

TEST_F(KnownCauses, OfPageableInput) {
  new_run.ranks[0].probes->needs.input_pageable = true;
  EXPECT_THAT(codes({Layer::input}), ElementsAre("pageable_input"));
  EXPECT_THAT(found[0].hint, HasSubstr("--input host"));
  base_run.ranks[0].probes->needs.input_pageable = true;
  EXPECT_THAT(codes({Layer::input}), ElementsAre("not_seen"));
}

TEST_F(KnownCauses, OfLinks) {
  base_machine.gpus[0].peers = {{"0000:02:00.0", true, true, true}};
  gpu().peers = {{"0000:02:00.0", false, false, false}};
  gpu().active_nvlinks = int64_t{0};
  base_machine.gpus[0].active_nvlinks = int64_t{18};
  new_machine.variables["NCCL_P2P_DISABLE"] = "1";
  EXPECT_THAT(codes({Layer::communication}),
              ElementsAre("p2p_refused", "nvlink_absent", "nvlinks_fewer", "transport"));
  EXPECT_THAT(found[3].seen, HasSubstr("NCCL_P2P_DISABLE=1"));
  gpu().peers[0].reads = Unknown{"not told"};
  EXPECT_EQ(codes({Layer::communication}).front(), "nvlink_absent") << "unknown is not refused";
}

TEST_F(KnownCauses, WhatNcclTookIsToldWhereBothSidesKnowIt) {
  const auto took = [](nearmetal::Run& run, const char* transport) {
    NcclChoices choices;
    choices.transports = {transport};
    run.communication.emplace().nccl = choices;
  };
  took(base_run, "P2P/CUMEM");
  EXPECT_THAT(codes({Layer::communication}), ElementsAre("not_seen"));
  took(new_run, "NET/Socket/0");
  EXPECT_THAT(codes({Layer::communication}), ElementsAre("transport_chosen"));
  EXPECT_EQ(found[0].seen, "NCCL goes by NET/Socket/0 instead of P2P/CUMEM");
  took(new_run, "P2P/CUMEM");
  EXPECT_THAT(codes({Layer::communication}), ElementsAre("not_seen"));
}

TEST_F(KnownCauses, OfTheGpu) {
  base_machine.gpus[0].power_limit_watts = 700.0;
  gpu().power_limit_watts = 500.0;
  new_run.ranks[0].monitoring->seen = {"clocks lowered by the power limit in 80 % of the samples"};
  EXPECT_THAT(codes({Layer::clock}), ElementsAre("clocks_lowered", "power_limit"));
  gpu().multiprocessors = int64_t{66};
  EXPECT_THAT(codes({Layer::memory}), ElementsAre("multiprocessors_fewer"));
  base_machine.gpus[0].link_width = int64_t{16};
  gpu().link_width = int64_t{4};
  new_run = run_on({.pageable_seconds = 5.5e-3});
  EXPECT_THAT(codes({Layer::input}), ElementsAre("link_width", "as_if_pageable"));
}

TEST_F(KnownCauses, TheHypervisorComesLastAndACauseOnce) {
  base_machine.virtualisation.machine = MachineKind::bare_metal;
  new_machine.virtualisation.machine = MachineKind::vm;
  new_machine.usable_cpus = 1;
  base_machine.usable_cpus = 2;
  EXPECT_THAT(codes({Layer::cpu, Layer::launch, Layer::memory}),
              ElementsAre("cpu_set_smaller", "hypervisor"));
  EXPECT_EQ(found[1].layer, Layer::cpu);
  new_run.ranks[0].binding->numa_node = Unknown{"--bind off"};
  EXPECT_EQ(codes({Layer::memory}), (std::vector<std::string>{"not_bound", "hypervisor"}));
}

}  // namespace
}  // namespace nearmetal
