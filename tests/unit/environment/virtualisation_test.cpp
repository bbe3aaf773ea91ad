#include <dlfcn.h>
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
  Environment machine;
  machine.virtualisation = found;
  EXPECT_EQ(contradiction(MachineKind::vm, machine), std::nullopt) << "nothing speaks against it";
}

TEST(Virtualisation, TheVersionOfTheHypervisorIsKnownWhereTheGuestSeesIt) {
  const auto version_in = [](const char* fixture) {
    const Maybe<std::string> found = found_in(fixture).virtualisation.hypervisor_version;
    return found ? *found : found.reason;
  };
  EXPECT_EQ(version_in("constructed_hyperv"), "10.0.20348");
  EXPECT_EQ(version_in("constructed_kvm"), "pc-q35-7.2");
  EXPECT_EQ(version_in("constructed_vmware"), "the hypervisor does not show it");
  const HostFixture silent("constructed_bare_metal");
  const TemporaryFolder xen;
  xen.write("sys/hypervisor/type", "xen\n");
  for (const auto& [file, text] : {std::pair("major", "4"), {"minor", "17"}, {"extra", ".4-pre"}}) {
    xen.write(std::string("sys/hypervisor/version/") + file, std::string(text) + "\n");
  }
  const Virtualisation found = find_virtualisation(xen.path(), silent.queries(), true);
  EXPECT_EQ(*found.hypervisor, "xen");
  EXPECT_EQ(*found.hypervisor_version, "4.17.4-pre");
}

// Lines as Linux 6.1 writes them (proc_pid_mountinfo(5)), above the folder of this process.
TEST(Environment, KnowsTheFileSystemOfTheWorkingFolder) {
  const TemporaryFolder root;
  const std::string here = std::filesystem::current_path();
  root.write("proc/self/mountinfo",
             "22 28 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:12 - proc proc rw\n"
             "28 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro\n"
             "97 28 0:44 / " +
                 here +
                 " rw,relatime shared:51 master:2 - nfs4 nas:/export rw,vers=4.2\n"
                 "98 28 0:45 / " +
                 here + "er rw,relatime - tmpfs tmpfs rw\n");
  const HostFixture silent("constructed_bare_metal");
  Storage found = find_environment(root.path(), silent.queries()).storage;
  EXPECT_EQ(*found.file_system, "nfs4");
  EXPECT_EQ(*found.device, "nas:/export");
  EXPECT_GT(*found.free_bytes, 0);
  Storage later = found;
  later.free_bytes = 1;
  EXPECT_EQ(later, found) << "a run that writes a file makes no other machine";
  std::filesystem::create_directory(root.path() / "a folder");
  std::filesystem::current_path(root.path() / "a folder");
  root.write("proc/self/mountinfo", "28 1 254:1 / / rw - ext4 /dev/vda1 rw\n29 28 254:2 / " +
                                        root.path().string() +
                                        "/a\\040folder rw - xfs /dev/vdb1 rw\n");
  found = find_environment(root.path(), silent.queries()).storage;
  std::filesystem::current_path(here);
  EXPECT_EQ(*found.file_system, "xfs") << "a mount whose name has a blank";
  found = find_environment(TemporaryFolder().path(), silent.queries()).storage;
  EXPECT_FALSE(found.file_system);
  EXPECT_TRUE(find_environment().storage.file_system) << "of this machine";
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
  const Environment vm = found_in("recorded_firecracker_docker");
  EXPECT_EQ(contradiction(MachineKind::vm, vm), std::nullopt);
  EXPECT_EQ(contradiction(MachineKind::container, vm), std::nullopt);
  EXPECT_THAT(*contradiction(MachineKind::bare_metal, vm), HasSubstr("firecracker"));
  const Environment bare = found_in("constructed_bare_metal");
  EXPECT_EQ(contradiction(MachineKind::bare_metal, bare), std::nullopt);
  EXPECT_THAT(*contradiction(MachineKind::vm, bare), HasSubstr("no hypervisor"));
  EXPECT_THAT(*contradiction(MachineKind::container, bare), HasSubstr("nothing shows a container"));
}

TEST(Virtualisation, AGuestWithEncryptedMemoryIsKnownByWhatItsKernelShows) {
  const SystemQueries silent{[] { return Unknown{"no CPUID"}; },
                             [](const char*) { return Unknown{"no systemd"}; },
                             [](const char*) { return std::string(); }};
  const auto found = [&](const char* file, const char* text, bool is_guest = true) {
    const TemporaryFolder root;
    root.write("proc/cpuinfo", "flags\t\t: fpu\n");
    root.write(file, text);
    return find_virtualisation(root.path(), silent, is_guest).confidential;
  };
  EXPECT_EQ(*found("proc/cpuinfo", "flags\t\t: fpu tdx_guest\n"), "tdx");
  EXPECT_EQ(*found("dev/tdx_guest", ""), "tdx");
  EXPECT_EQ(*found("sys/bus/platform/devices/sev-guest/uevent", ""), "sev-snp");
  EXPECT_EQ(*found("proc/cpuinfo", "flags\t\t: fpu\n"), "none");
  EXPECT_THAT(found("proc/cpuinfo", "flags\t\t: fpu sev\n").reason, HasSubstr("plain SEV"));
  EXPECT_EQ(*found("proc/cpuinfo", "flags\t\t: fpu sev\n", false), "none") << "a host";
  SystemQueries systemd = silent;
  systemd.detect_virt = [](const char* question) -> Maybe<std::string> {
    return std::string(question == std::string("--cvm") ? "sev-es" : "kvm");
  };
  const TemporaryFolder root;
  root.write("proc/cpuinfo", "flags\t\t: fpu sev\n");
  EXPECT_EQ(*find_virtualisation(root.path(), systemd, true).confidential, "sev-es");
}

TEST(Virtualisation, ALibraryBeforeTheDriversIsNamed) {
  EXPECT_THAT(interposer("libnothing.so.1").reason, HasSubstr("is not loaded"));
  void* const driver = dlopen(NM_FAKE_NVML, RTLD_NOW);
  ASSERT_NE(driver, nullptr) << dlerror();
  EXPECT_EQ(*interposer(NM_FAKE_NVML, "nvmlInit_v2"), "none");
  const TemporaryFolder folder;  // with another file of the same functions
  const std::filesystem::path copy = folder.path() / "libvgpu.so";
  std::filesystem::copy_file(NM_FAKE_NVML, copy);
  void* const other = dlopen(copy.c_str(), RTLD_NOW);
  ASSERT_NE(other, nullptr) << dlerror();
  EXPECT_EQ(*interposer(NM_FAKE_NVML, "nvmlInit_v2"), copy);
  dlclose(other);
  dlclose(driver);
}

// One GPU of a kind says nothing for all.
TEST(Virtualisation, AMachineShowsWhatAllItsGpusAre) {
  Environment machine;
  EXPECT_EQ(shows(MachineKind::vgpu, machine).reason, "it has no GPU");
  machine.gpus.resize(2);
  machine.gpus[0].virtualisation = std::string("vgpu");
  EXPECT_FALSE(shows(MachineKind::vgpu, machine)) << "the other is not known";
  machine.gpus[1].virtualisation = std::string("passthrough");
  EXPECT_EQ(*shows(MachineKind::vgpu, machine), false);
  EXPECT_THAT(*contradiction(MachineKind::pass_through, machine), HasSubstr("not all GPUs"));
  machine.gpus[1].virtualisation = std::string("vgpu");
  EXPECT_EQ(*shows(MachineKind::vgpu, machine), true);
  EXPECT_EQ(contradiction(MachineKind::vgpu, machine), std::nullopt);

  EXPECT_FALSE(shows(MachineKind::confidential, machine)) << "nothing is known";
  machine.virtualisation.confidential = std::string("none");
  EXPECT_FALSE(shows(MachineKind::confidential, machine)) << "of the GPUs";
  for (Gpu& gpu : machine.gpus) gpu.confidential = std::string("off");
  EXPECT_THAT(*contradiction(MachineKind::confidential, machine), HasSubstr("neither"));
  machine.gpus[1].confidential = std::string("on");
  EXPECT_EQ(*shows(MachineKind::confidential, machine), true);
  machine.virtualisation.interposer = std::string("none");
  EXPECT_THAT(*contradiction(MachineKind::interposed, machine), HasSubstr("libcuda"));
}

}  // namespace
}  // namespace nearmetal
