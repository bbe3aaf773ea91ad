
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/environment/environment.h"
#include "tests/support/host_fixture.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;

Environment found_in(const std::string& fixture) {
  const HostFixture host(fixture);
  return find_environment(host.root(), host.queries());
}

struct Expected {
  const char* fixture;
  const char* machine;
  const char* hypervisor;
  const char* container;
};

// The name of a fixture says whether it is recorded or constructed.
class Host : public testing::TestWithParam<Expected> {};

TEST_P(Host, IsRecognised) {
  const Virtualisation found = found_in(GetParam().fixture).virtualisation;
  EXPECT_EQ(found.machine ? to_string(*found.machine) : found.machine.reason, GetParam().machine);
  EXPECT_EQ(found.hypervisor.value.value_or(found.hypervisor.reason), GetParam().hypervisor);
  EXPECT_EQ(*found.container, GetParam().container);
}

INSTANTIATE_TEST_SUITE_P(
    , Host,
    testing::Values(Expected{"recorded_firecracker_docker", "vm", "firecracker", "docker"},
                    Expected{"constructed_bare_metal", "bare-metal", "none", "none"},
                    Expected{"constructed_kvm", "vm", "kvm", "none"},
                    Expected{"constructed_vmware", "vm", "vmware", "none"},
                    Expected{"constructed_hyperv", "vm", "hyper-v", "none"},
                    Expected{"constructed_gvisor", "gVisor shows a machine of its own making",
                             "gVisor shows a machine of its own making", "gvisor"}),
    [](const auto& info) { return std::string(info.param.fixture); });

TEST(Virtualisation, ConstructedBareMetalShowsItsPciAndKernelFacts) {
  const Virtualisation found = found_in("constructed_bare_metal").virtualisation;
  EXPECT_EQ(*found.dmi_product, "PowerEdge XE9680");
  EXPECT_EQ(*found.iommu_groups, 2);
  EXPECT_EQ(*found.kernel_options, "intel_iommu=on iommu=pt") << "and nothing else of the line";
  EXPECT_TRUE(*found.peer_memory_module);
  EXPECT_EQ(*found.nvidia_kernel_module, "580.159.03");
  EXPECT_FALSE(*found.mps_daemon);
  EXPECT_FALSE(found.cpuid_signature);
}

TEST(Virtualisation, WithoutTheFlagsOfTheCpuNothingProvesBareMetal) {
  const TemporaryFolder empty;
  const SystemQueries silent{[] { return Unknown{"no CPUID"}; },
                             [](const char*) { return Unknown{"no systemd"}; },
                             [](const char*) { return std::string(); }};
  const Virtualisation found = find_virtualisation(empty.path(), silent, Unknown{"no flags"});
  EXPECT_FALSE(found.machine);
  EXPECT_THAT(found.machine.reason, HasSubstr("no flags"));
  EXPECT_FALSE(found.iommu_groups) << "unknown is not 0";
  EXPECT_FALSE(found.peer_memory_module);
  EXPECT_EQ(contradiction(MachineKind::vm, found), std::nullopt) << "nothing speaks against it";
}

TEST(Virtualisation, TheKindOfAContainerComesFromWhereItShows) {
  const SystemQueries pod{[] { return Unknown{""}; }, [](const char*) { return Unknown{""}; },
                          [](const char* name) {
                            return std::string(name) == "KUBERNETES_SERVICE_HOST" ? "10.0.0.1" : "";
                          }};
  const HostFixture host("constructed_bare_metal");
  EXPECT_EQ(*find_virtualisation(host.root(), pod, false).container, "kubernetes");
  const TemporaryFolder podman;
  podman.write("run/.containerenv", "");
  EXPECT_EQ(*find_virtualisation(podman.path(), host.queries(), false).container, "podman");
  const TemporaryFolder lxc;
  lxc.write("proc/1/cgroup", "0::/lxc/guest\n");
  EXPECT_EQ(*find_virtualisation(lxc.path(), host.queries(), false).container, "lxc");
}

TEST(Virtualisation, ClaimsAreCheckedAgainstWhatIsFound) {
  const Virtualisation vm = found_in("recorded_firecracker_docker").virtualisation;
  EXPECT_EQ(contradiction(MachineKind::vm, vm), std::nullopt);
  EXPECT_EQ(contradiction(MachineKind::container, vm), std::nullopt);
  EXPECT_THAT(*contradiction(MachineKind::bare_metal, vm), HasSubstr("firecracker"));
  const Virtualisation bare = found_in("constructed_bare_metal").virtualisation;
  EXPECT_EQ(contradiction(MachineKind::bare_metal, bare), std::nullopt);
  EXPECT_THAT(*contradiction(MachineKind::vm, bare), HasSubstr("no hypervisor"));
  EXPECT_THAT(*contradiction(MachineKind::container, bare), HasSubstr("nothing shows a container"));
}

}  // namespace
}  // namespace nearmetal
