#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reports/compare/compare.h"
#include "reports/json/json.h"
#include "tests/support/sample_report.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<Environment> machine(bool cpu_flag, const Maybe<MachineKind>& conclusion,
                                 std::optional<MachineKind> claim = {}) {
  Environment environment = sample_report().environments[0];
  environment.hypervisor_cpu_flag = cpu_flag;
  environment.virtualisation.machine = conclusion;
  environment.claim = claim;
  return {environment};
}

std::vector<std::string> doubts(const std::vector<Environment>& bare,
                                const std::vector<Environment>& next,
                                ComparisonForm form = ComparisonForm::vm) {
  RunSet bare_set, new_set;
  bare_set.environments = bare;
  new_set.environments = next;
  std::vector<std::string> codes;
  for (const Warning& doubt : doubts_of_claim(bare_set, new_set, form)) codes.push_back(doubt.code);
  return codes;
}

// The environment of bare metal unless it is said to be in a VM.
std::vector<Environment> in_container(const Maybe<std::string>& container, bool in_vm = false,
                                      std::optional<MachineKind> claim = {}) {
  auto environments = machine(in_vm, in_vm ? MachineKind::vm : MachineKind::bare_metal, claim);
  environments[0].virtualisation.container = container;
  return environments;
}

TEST(EnvironmentDifferences, AnEmptyListIsNotUnknown) {
  Environment without;
  without.gpus.clear();
  for (const auto& [name, value] : environment_facts(without)) {
    EXPECT_NE(name, "gpus") << value;
    EXPECT_NE(name, "variables") << value;
  }
}

TEST(EnvironmentDifferences, AVariableMayHoldAnyWord) {
  auto without = machine(true, MachineKind::vm), with = without;
  with[0].variables["NCCL_NET_PLUGIN"] = "none";
  EXPECT_THAT(environment_differences(with, with), IsEmpty());
  const std::string name = "variables/NCCL_NET_PLUGIN";
  EXPECT_THAT(environment_differences(with, without),
              ElementsAre(EnvironmentDifference{name, "none", "(none)"}));
  auto other = with;
  other[0].variables["NCCL_NET_PLUGIN"] = "ofi";
  EXPECT_THAT(environment_differences(other, with),
              ElementsAre(EnvironmentDifference{name, "ofi", "none"}));
  EXPECT_THAT(environment_differences(without, other),
              ElementsAre(EnvironmentDifference{name, "(none)", "ofi"}));
}

TEST(EnvironmentDifferences, IdsOfALaunchAreNone) {
  auto one = machine(true, MachineKind::vm), other = one;
  other[0].boot_id = std::string("another");
  for (const char* id :
       {"ess_base_jobid", "orte_hnp_uri", "orte_parent_uri", "orte_jobfam_session_dir",
        "orte_precondition_transports", "orte_tmpdir_base", "btl_vader_backing_directory"}) {
    one[0].variables[std::string("OMPI_MCA_") + id] = "1";
    other[0].variables[std::string("OMPI_MCA_") + id] = "2";
  }
  EXPECT_THAT(environment_differences(one, other), IsEmpty());
  other[0].variables["OMPI_MCA_btl"] = "tcp";
  EXPECT_THAT(environment_differences(one, other),
              ElementsAre(EnvironmentDifference{"variables/OMPI_MCA_btl", "(none)", "tcp"}));
}

TEST(EnvironmentDifferences, WhatMpirunAndItsCallByASweepSetAreNone) {
  const auto one = machine(true, MachineKind::vm);
  auto other = one;
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"btl", "self,vader"},
                                                        {"pml", "ob1"},
                                                        {"ess", "pmi"},
                                                        {"initial_wdir", "/tmp"},
                                                        {"hwloc_base_binding_policy", "none"},
                                                        {"rmaps_base_mapping_policy", "slot"},
                                                        {"orte_launch", "1"},
                                                        {"pmix", "^s1"},
                                                        {"mpi_oversubscribe", "0"}}) {
    other[0].variables["OMPI_MCA_" + name] = value;
  }
  other[0].variables["PMIX_MCA_psec"] = "native";
  EXPECT_THAT(environment_differences(one, other), IsEmpty());
  auto split = other;
  split[0].variables["OMPI_MCA_btl"] = "self,tcp";
  EXPECT_THAT(environment_differences(other, split), IsEmpty());
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{
           {"pml", "ucx"}, {"coll_tuned_use_dynamic_rules", "1"}, {"btl_tcp_if_include", "lo"}}) {
    auto chosen = other;
    chosen[0].variables["OMPI_MCA_" + name] = value;
    EXPECT_EQ(environment_differences(other, chosen).size(), 1U) << name;
  }
}

TEST(EnvironmentDifferences, AnAddressOfANicIsNoneAndASlowerLinkIsOne) {
  auto one = machine(true, MachineKind::vm), other = one;
  one[0].rdma[0].ports[0].gids[0].gid = std::string("fe80::1");
  other[0].rdma[0].ports[0].gids[0].gid = std::string("fe80::2");
  one[0].gpus[0].link_generation = 5;  // an idle GPU lowers it
  other[0].gpus[0].link_generation = 1;
  EXPECT_THAT(environment_differences(one, other), IsEmpty());
  one[0].rdma[0].link_generation = 5;
  other[0].rdma[0].link_generation = 4;
  EXPECT_THAT(environment_differences(one, other),
              ElementsAre(EnvironmentDifference{"rdma/0/link_generation", "5", "4"}));
}

// A guest whose CPU hides the hypervisor is given away by other signs, and by what its user said.
TEST(EnvironmentDifferences, AllEvidenceIsCheckedAgainstTheSides) {
  const Unknown open{"not determined"};
  const auto bare = machine(false, MachineKind::bare_metal);
  const auto vm = machine(true, MachineKind::vm);
  const auto hidden = machine(false, MachineKind::vm);
  EXPECT_THAT(doubts(bare, vm), IsEmpty());
  EXPECT_THAT(doubts(bare, hidden), IsEmpty());
  EXPECT_THAT(doubts(hidden, vm), ElementsAre("claim_bare"));
  EXPECT_THAT(doubts(vm, bare), ElementsAre("claim_bare", "claim_vm"));
  EXPECT_THAT(doubts(machine(false, open), machine(true, open)), IsEmpty())
      << "reports of version 1.0 have the flag of the CPU alone";
}

TEST(EnvironmentDifferences, ClaimsOfTheUserAreCheckedAgainstTheSides) {
  const MachineKind metal = MachineKind::bare_metal;
  EXPECT_THAT(doubts(machine(false, metal, metal), machine(true, MachineKind::vm, MachineKind::vm)),
              IsEmpty());
  EXPECT_THAT(doubts(machine(false, metal, MachineKind::vm), machine(true, MachineKind::vm, metal)),
              ElementsAre("claim_bare", "claim_vm"));
}

TEST(EnvironmentDifferences, ASideGivenAsAContainerIsCheckedAgainstWhatItShows) {
  const auto of_containers = [](const auto& bare, const auto& next) {
    return doubts(bare, next, ComparisonForm::container);
  };
  const std::string none = "none", pod = "kubernetes";
  const MachineKind container = MachineKind::container, metal = MachineKind::bare_metal;
  EXPECT_THAT(of_containers(in_container(none), in_container(pod)), IsEmpty());
  EXPECT_THAT(of_containers(in_container(none), in_container(none)),
              ElementsAre("claim_container"));
  EXPECT_THAT(of_containers(in_container(pod), in_container(pod)), ElementsAre("claim_bare"));
  EXPECT_THAT(of_containers(in_container(none), in_container(pod, false, metal)),
              ElementsAre("claim_container"));
  EXPECT_THAT(of_containers(in_container(none, false, container), in_container(pod)),
              ElementsAre("claim_bare"));
  EXPECT_THAT(of_containers(in_container(none), in_container(pod, true)),
              ElementsAre("claim_container"))
      << "the difference is that of VM and container";
  EXPECT_THAT(of_containers(in_container(none, true), in_container(pod, true)),
              ElementsAre("claim_bare"));
  EXPECT_THAT(of_containers(in_container(none), in_container(Unknown{"not determined"})),
              ElementsAre("claim_unconfirmed"));
}

TEST(EnvironmentDifferences, NothingKnownIsADoubt) {
  auto silent = machine(false, Unknown{"not determined"});
  silent[0].hypervisor_cpu_flag = Unknown{"no CPUID"};
  EXPECT_THAT(doubts(silent, machine(true, MachineKind::vm)), ElementsAre("claim_unconfirmed"));
}

}  // namespace
}  // namespace nearmetal
