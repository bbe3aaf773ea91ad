#include "bench/sweep/host_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/launch/launch_plan.h"

namespace nearmetal {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

HostFacts facts_of(const std::string& name, std::vector<InterfaceAddress> addresses,
                   std::map<std::string, std::string> variables = {}) {
  HostFacts facts = own_host_facts();
  facts.host_name = name;
  facts.boot_id = "boot of " + name;
  facts.addresses = std::move(addresses);
  facts.variables = std::move(variables);
  return facts;
}

std::vector<Host> hosts_named(const std::vector<std::string>& addresses) {
  std::vector<Host> hosts;
  for (const std::string& address : addresses) {
    hosts.emplace_back();
    hosts.back().name = "h" + std::to_string(hosts.size());
    hosts.back().address = address;
  }
  return hosts;
}

std::vector<std::string> command_for(const std::vector<std::string>& addresses,
                                     const Launcher& launcher = {},
                                     const LaunchOptions& options = {}) {
  return launch_command(one_rank_each(hosts_named(addresses), launcher), launcher, {"run"},
                        options);
}

TEST(HostProbe, AddressesOfSeveralHostsAreFoundWithTheirNetworks) {
  const std::vector<HostFacts> facts = {
      facts_of("a", {{"eth0", "10.0.0.1", 24}, {"docker0", "172.17.0.1", 16}}),
      facts_of("b", {{"eth0", "10.0.0.2", 24}, {"docker0", "172.17.0.1", 16}}),
      facts_of("c", {{"ens3", "10.0.0.3", 24}, {"virbr0", "192.168.122.1", 24}})};
  const std::vector<SharedAddress> shared = shared_addresses(facts);
  ASSERT_EQ(shared.size(), 1U);
  EXPECT_EQ(shared[0].network(), "172.17.0.0/16");
  EXPECT_EQ(text_of(shared[0]), "docker0 (172.17.0.1/16) is the same on a, b");
  EXPECT_THAT(shared_addresses(std::span(facts).last(1)), IsEmpty());
  EXPECT_EQ((SharedAddress{{"x", "10.1.2.3", 0}, {}}).network(), "0.0.0.0/0");
  EXPECT_EQ((SharedAddress{{"x", "10.1.2.3", 32}, {}}).network(), "10.1.2.3/32");
}

TEST(HostProbe, TwoNamesOfOneMachineAreSeenByItsKernel) {
  std::vector<HostFacts> facts = {facts_of("ubuntu", {}), facts_of("ubuntu", {})};
  facts[1].boot_id = "of a clone";
  const std::vector<Host> hosts = hosts_named({"x", "y"});
  EXPECT_EQ(hosts_of_one_machine(hosts, facts), "");
  facts[1] = facts[0];
  EXPECT_THAT(hosts_of_one_machine(hosts, facts),
              HasSubstr("hosts 'h1' and 'h2' are one machine, ubuntu: "));
  facts[0].boot_id = facts[1].boot_id = "";
  EXPECT_EQ(hosts_of_one_machine(hosts, facts), "") << "it is not known";
}

TEST(HostProbe, AddressesThatAreNotTheHostsOwnAreNamed) {
  const std::vector<HostFacts> facts = {facts_of("a", {{"eth0", "10.0.0.1", 24}}),
                                        facts_of("b", {{"eth0", "10.0.0.2", 24}})};
  EXPECT_THAT(foreign_addresses(hosts_named({"10.0.0.1", "b"}), facts), IsEmpty());
  EXPECT_THAT(foreign_addresses(hosts_named({"10.0.0.1", "192.0.2.2"}), facts),
              ElementsAre("host 'h2' has no address 192.0.2.2, by which it is reached"));
}

TEST(HostProbe, VariablesThatAreNotAlikeAreNamedWithTheirHosts) {
  const std::vector<HostFacts> facts = {
      facts_of("a", {}, {{"NCCL_DEBUG", "INFO"}, {"UCX_TLS", "tcp"}}),
      facts_of("b", {}, {{"UCX_TLS", "tcp"}}), facts_of("c", {}, {{"UCX_TLS", "tcp"}})};
  EXPECT_THAT(unlike_variables(facts), ElementsAre("NCCL_DEBUG is INFO on a, not set on b, c"));
}

TEST(HostProbe, VariablesThatSteerRanksAreThoseOfTheLibraries) {
  for (const char* name : {"NCCL_IB_HCA", "UCX_NET_DEVICES", "FI_PROVIDER", "CUDA_DEVICE_ORDER"}) {
    EXPECT_TRUE(steers_ranks(name)) << name;
  }
  for (const char* name : {"CUDA_HOME", "CUDA_VISIBLE_DEVICES", "PATH", "MY_NCCL_"}) {
    EXPECT_FALSE(steers_ranks(name)) << name;
  }
}

TEST(HostProbe, FactsAreALineWithoutTheLoopback) {
  const HostFacts own = own_host_facts();
  EXPECT_THAT(to_json_line(own), Not(HasSubstr("\n")));
  for (const InterfaceAddress& one : own.addresses) EXPECT_NE(one.interface, "lo");
}

TEST(HostProbe, DottedNamesOfSeveralHostsStayWhole) {
  EXPECT_THAT(command_for({"gpu01.rack1.example", "gpu01.rack2.example"}),
              Contains("orte_keep_fqdn_hostnames"));
  EXPECT_THAT(command_for({"10.0.0.1", "10.0.0.2"}), Not(Contains("orte_keep_fqdn_hostnames")));
  EXPECT_THAT(command_for({"a", "b"}), Not(Contains("prte_keep_fqdn_hostnames")));
}

TEST(HostProbe, NetworksAreLeftOutWhereNoneIsNamed) {
  Launcher launcher;
  launcher.networks_left_out = {"172.17.0.0/16"};
  EXPECT_THAT(command_for({"a", "b"}, launcher), Contains("127.0.0.0/8,172.17.0.0/16").Times(2));
  launcher.network = "10.0.0.0/24";
  EXPECT_THAT(command_for({"a", "b"}, launcher), Not(Contains("btl_tcp_if_exclude")));
}

TEST(HostProbe, UcxIsTakenInPlaceOfTcpWhereItIsAskedFor) {
  Launcher launcher;
  launcher.mpi = MpiTransport::ucx;
  launcher.network = "10.0.0.0/24";
  const std::vector<std::string> command = command_for({"a", "b"}, launcher);
  EXPECT_THAT(command, Contains("opal_common_ucx_devices"));
  for (const char* word : {"ob1", "btl", "btl_tcp_if_include"}) {
    EXPECT_THAT(command, Not(Contains(word)));
  }
  EXPECT_THAT(command, Contains("oob_tcp_if_include"));
  launcher.mpi = MpiTransport::tcp;
  EXPECT_EQ(command_for({"a", "b"}, launcher), [] {
    Launcher standard;
    standard.network = "10.0.0.0/24";
    return command_for({"a", "b"}, standard);
  }());
}

TEST(HostProbe, RanksOfSrunAreToldByVariables) {
  LaunchOptions by_srun;
  by_srun.by_srun = true;
  Launcher launcher;
  EXPECT_EQ(command_for({"a", "b"}, launcher, by_srun).front(), "srun") << "Open MPI chooses";
  launcher.mpi = MpiTransport::ucx;
  EXPECT_THAT(command_for({"a", "b"}, launcher, by_srun), Contains("OMPI_MCA_pml=ucx"));
  launcher.mpi = MpiTransport::tcp;
  launcher.network = "10.0.0.0/24";
  const std::vector<std::string> command = command_for({"a", "b"}, launcher, by_srun);
  EXPECT_THAT(command, Contains("OMPI_MCA_pml=ob1"));
  EXPECT_THAT(command, Contains("OMPI_MCA_btl_tcp_if_include=10.0.0.0/24"));
}

TEST(HostProbe, AJobHereAsksNoResourceManager) {
  LaunchOptions inside;
  inside.in_allocation = true;
  EXPECT_THAT(command_for({this_host, this_host}, {}, inside), Contains("ras"));
  EXPECT_THAT(command_for({this_host, this_host}), Not(Contains("ras")));
  EXPECT_THAT(command_for({"a", "b"}, {}, inside), Not(Contains("ras"))) << "it starts daemons";
}

}  // namespace
}  // namespace nearmetal
