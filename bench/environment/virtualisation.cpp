#include "bench/environment/virtualisation.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <span>

#include "base/pattern.h"
#include "base/text.h"
#include "bench/environment/child_process.h"
#include "bench/environment/system_files.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

struct Sign {
  const char* text;  // of it, anywhere, in lower case
  const char* name;
};

// Signatures of CPUID by the Linux kernel's detection (arch/x86/kernel/cpu/hypervisor.c and the
// files it names) and systemd's src/basic/virt.c; so are the names in DMI.
constexpr Sign cpuid_signs[] = {
    {"kvmkvmkvm", "kvm"},     {"linux kvm hv", "kvm"},     {"vmwarevmware", "vmware"},
    {"xenvmmxenvmm", "xen"},  {"microsoft hv", "hyper-v"}, {"tcgtcgtcgtcg", "qemu"},
    {"bhyve bhyve", "bhyve"}, {"acrnacrnacrn", "acrn"},    {"prl hyperv", "parallels"}};
constexpr Sign dmi_signs[] = {{"vmware", "vmware"},
                              {"kvm", "kvm"},
                              {"qemu", "kvm"},
                              {"amazon ec2", "kvm"},
                              {"google compute", "kvm"},
                              {"openstack", "kvm"},
                              {"virtualbox", "virtualbox"},
                              {"innotek", "virtualbox"},
                              {"xen", "xen"},
                              {"virtual machine", "hyper-v"},
                              {"parallels", "parallels"},
                              {"bhyve", "bhyve"}};
constexpr Sign group_signs[] = {{"docker", "docker"},
                                {"kubepods", "kubernetes"},
                                {"libpod", "podman"},
                                {"lxc", "lxc"},
                                {"containerd", "containerd"}};

std::string name_of(std::span<const Sign> signs, const Maybe<std::string>& text) {
  if (!text) return "";
  const std::string low = lower_case(*text);
  for (const Sign& sign : signs) {
    if (low.find(sign.text) != low.npos) return sign.name;
  }
  return "";
}

// A bare-metal server of a cloud has its name in DMI, too.
bool names_bare_metal(const Maybe<std::string>& product) {
  return product && lower_case(*product).find(".metal") != std::string::npos;
}

std::string hypervisor_of(const fs::path& root, const Virtualisation& found) {
  const Maybe<std::string> version = first_line(root / "proc/version");
  // Firecracker answers CPUID as KVM does and has no DMI; its guests' kernels carry its name.
  if (version && found.cpuid_signature && !found.dmi_vendor &&
      lower_case(*version).find("-fc") != std::string::npos) {
    return "firecracker";
  }
  std::string name = name_of(cpuid_signs, found.cpuid_signature);
  for (const auto* text : {&found.dmi_product, &found.dmi_vendor}) {
    if (name.empty() && !names_bare_metal(found.dmi_product)) name = name_of(dmi_signs, *text);
  }
  if (name.empty()) name = found.hypervisor_type.value.value_or("");
  if (!name.empty()) return name;
  const Maybe<std::string>& answer = found.detect_virt_vm;
  return answer && *answer != "none" ? *answer : "";
}

void conclude_machine(const fs::path& root, const Maybe<bool>& cpu_flag, Virtualisation& found) {
  const std::string name = hypervisor_of(root, found);
  const bool flagged = cpu_flag && *cpu_flag;
  if (!name.empty() || flagged) {
    found.machine = MachineKind::vm;
    found.hypervisor = Unknown{"the CPU shows a hypervisor that does not name itself"};
    if (!name.empty()) found.hypervisor = name;
    return;
  }
  // The bit of CPUID is what a guest cannot miss; without it nothing proves bare metal.
  const bool in_gvisor = found.container && *found.container == "gvisor";
  if (cpu_flag && !in_gvisor) {
    found.machine = MachineKind::bare_metal;
    found.hypervisor = std::string("none");
    return;
  }
  found.machine = Unknown{in_gvisor ? "gVisor shows a machine of its own making"
                                    : "no sign of a hypervisor, but " + cpu_flag.reason};
  found.hypervisor = Unknown{found.machine.reason};
}

// gVisor's kernel calls itself Linux 4.4.0 with the day on which that was released.
bool is_gvisor(const fs::path& root) {
  const Maybe<std::string> version = first_line(root / "proc/version");
  return version &&
         (version->starts_with("Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016") ||
          lower_case(*version).find("gvisor") != std::string::npos);
}

std::string container_by_groups(const fs::path& root) {
  std::string groups;
  for (const char* file : {"proc/self/cgroup", "proc/1/cgroup"}) {
    const Maybe<std::string> line = value_in(root / file, "0", ':');
    if (line) groups += *line + "\n";
  }
  return name_of(group_signs, Maybe<std::string>(groups));
}

std::string container_of(const fs::path& root, const SystemQueries& queries,
                         const Virtualisation& found) {
  if (is_gvisor(root)) return "gvisor";
  if (!queries.variable("KUBERNETES_SERVICE_HOST").empty()) return "kubernetes";
  for (const char* name : {"APPTAINER_NAME", "SINGULARITY_NAME"}) {
    if (!queries.variable(name).empty()) return "apptainer";
  }
  if (is_there(root / "run/.containerenv")) return "podman";
  if (is_there(root / ".dockerenv")) return "docker";
  std::string by_groups = container_by_groups(root);
  if (!by_groups.empty()) return by_groups;
  if (std::string said = queries.variable("container"); !said.empty()) return said;
  const Maybe<std::string>& answer = found.detect_virt_container;
  return answer && *answer != "none" ? *answer : "";
}

Maybe<std::string> kernel_options(const fs::path& root) {
  Maybe<std::string> line = first_line(root / "proc/cmdline");
  if (!line) return line;
  constexpr std::array known = {
      "iommu",     "intel_iommu", "amd_iommu",         "pci",
      "hugepages", "hugepagesz",  "mitigations",       "transparent_hugepage",
      "isolcpus",  "nohz_full",   "default_hugepagesz"};
  std::vector<std::string> words = words_in(*line);
  std::erase_if(words, [&](const std::string& word) {
    return std::ranges::count(known, word.substr(0, word.find('='))) == 0;
  });
  return joined(words, " ");
}

Maybe<int64_t> iommu_groups(const fs::path& root) {
  const fs::path folder = root / "sys/kernel/iommu_groups";
  if (!is_there(folder)) return Unknown{folder.string() + " is not there"};
  return std::ssize(names_in(folder));
}

// NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build ...
Maybe<std::string> nvidia_kernel_flavour(const fs::path& root) {
  const Maybe<std::string> line = first_line(root / "proc/driver/nvidia/version");
  if (!line) return Unknown{line.reason};
  return std::string(line->find("Open Kernel Module") == line->npos ? "proprietary" : "open");
}

// As sysfs says, or, where a container lacks that, the line above.
Maybe<std::string> nvidia_kernel_module(const fs::path& root) {
  static const Pattern version(R"(\b(\d+\.\d+(\.\d+)*)\b)");
  Maybe<std::string> module = first_line(root / "sys/module/nvidia/version");
  const Maybe<std::string> line = first_line(root / "proc/driver/nvidia/version");
  const auto found = line ? version.groups_in(*line) : std::vector<std::string>{};
  return module || found.empty() ? module : Maybe<std::string>(found[1]);
}

// The first with dma-bufs for RDMA.
bool is_kernel_5_12(const std::string& version) {
  int major = 0, minor = 0;
  return std::sscanf(version.c_str(), "Linux version %d.%d", &major, &minor) == 2 &&
         (major > 5 || (major == 5 && minor >= 12));
}

// Whether the memory of this guest is encrypted, and how. Plain SEV has no sign that programs can
// read, and CPUs of hosts have its flags, too. A child is asked where nothing else decides.
Maybe<std::string> confidential(const fs::path& root, const SystemQueries& queries,
                                const Virtualisation& found) {
  Maybe<std::string> flags = value_in(root / "proc/cpuinfo", "flags", ':');
  const std::vector<std::string> words = words_in(flags.value.value_or(""));
  const auto has = [&](const char* flag) { return std::ranges::count(words, flag) > 0; };
  if (has("tdx_guest") || is_there(root / "dev/tdx_guest")) return std::string("tdx");
  for (const char* sign : {"dev/sev-guest", "sys/bus/platform/devices/sev-guest"}) {
    if (is_there(root / sign)) return std::string("sev-snp");
  }
  if (found.machine.value == MachineKind::bare_metal) return std::string("none");
  if (flags && !has("sev")) return std::string("none");
  if (Maybe<std::string> answer = queries.detect_virt("--cvm")) return answer;
  if (!flags) return flags;
  return Unknown{"a guest of plain SEV would show no sign of it"};
}

Maybe<std::string> cpuid_signature() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned hypervisor_bit = 1u << 31;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return Unknown{"CPUID has no leaf 1"};
  if ((c & hypervisor_bit) == 0) return Unknown{"CPUID shows no hypervisor"};
  __cpuid(0x40000000, a, b, c, d);
  std::array<char, 13> text{};
  std::memcpy(text.data(), &b, 4);
  std::memcpy(text.data() + 4, &c, 4);
  std::memcpy(text.data() + 8, &d, 4);
  return std::string(text.data());
#else
  return Unknown{"CPUID is of x86"};
#endif
}

// The build in EAX, the version in the halves of EBX: Hypervisor Top Level Functional
// Specification.
Maybe<std::string> hyper_v_version() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  __cpuid(0x40000002, a, b, c, d);
  return std::to_string(b >> 16) + "." + std::to_string(b & 0xffff) + "." + std::to_string(a);
#else
  return Unknown{"CPUID is of x86"};
#endif
}

// Xen has it in files, and QEMU the type of its machine, such as pc-q35-7.2, in DMI.
Maybe<std::string> hypervisor_version(const fs::path& root, const SystemQueries& queries,
                                      const Virtualisation& found) {
  const fs::path version = root / "sys/hypervisor/version";
  const Maybe<std::string> major = first_line(version / "major"),
                           minor = first_line(version / "minor");
  if (found.cpuid_signature.value == "Microsoft Hv") return queries.hyper_v_version();
  if (major && minor) {
    return *major + "." + *minor + first_line(version / "extra").value.value_or("");
  }
  if (found.dmi_vendor.value == "QEMU")
    return first_line(root / "sys/class/dmi/id/product_version");
  return Unknown{"the hypervisor does not show it"};
}

Maybe<std::string> detect_virt(const char* question) {
  const ChildOutput output = run_child({"systemd-detect-virt", question}, 5);
  std::string answer = output.text;
  answer.erase(answer.find_last_not_of(" \n") + 1);
  const bool one_word = !answer.empty() && answer.find_first_of(" \n") == answer.npos;
  if (!output.exit_status || !one_word) return Unknown{"systemd-detect-virt gave no answer"};
  return answer;
}

}  // namespace

SystemQueries system_queries() {
  return {cpuid_signature, detect_virt,
          [](const char* name) {
            const char* value = std::getenv(name);
            return std::string(value == nullptr ? "" : value);
          },
          hyper_v_version};
}

Virtualisation find_virtualisation(const fs::path& root, const SystemQueries& queries,
                                   const Maybe<bool>& hypervisor_cpu_flag) {
  Virtualisation found;
  found.cpuid_signature = queries.cpuid_signature();
  found.dmi_vendor = first_line(root / "sys/class/dmi/id/sys_vendor");
  found.dmi_product = first_line(root / "sys/class/dmi/id/product_name");
  found.bios_version = first_line(root / "sys/class/dmi/id/bios_version");
  found.hypervisor_type = first_line(root / "sys/hypervisor/type");
  found.detect_virt_vm = queries.detect_virt("--vm");
  found.detect_virt_container = queries.detect_virt("--container");
  found.clock_source =
      first_line(root / "sys/devices/system/clocksource/clocksource0/current_clocksource");
  found.iommu_groups = iommu_groups(root);
  found.kernel_options = kernel_options(root);
  const std::string pipes = queries.variable("CUDA_MPS_PIPE_DIRECTORY");
  found.mps_daemon = is_there(
      root / fs::path(pipes.empty() ? "/tmp/nvidia-mps" : pipes).relative_path() / "control");
  found.peer_memory_module = peer_memory_module(root);
  found.nvidia_kernel_module = nvidia_kernel_module(root);
  found.nvidia_kernel_flavour = nvidia_kernel_flavour(root);
  const std::string container = container_of(root, queries, found);
  found.container = container.empty() ? "none" : container;
  conclude_machine(root, hypervisor_cpu_flag, found);
  found.hypervisor_version = hypervisor_version(root, queries, found);
  found.confidential = confidential(root, queries, found);
  return found;
}

Maybe<bool> peer_memory_module(const fs::path& root) {
  const fs::path modules = root / "sys/module";
  if (!is_there(modules)) return Unknown{"/sys/module is not there"};
  return is_there(modules / "nvidia_peermem") || is_there(modules / "nv_peer_mem");
}

Maybe<bool> dma_buf_by_kernel(const fs::path& root) {
  const Maybe<std::string> flavour = nvidia_kernel_flavour(root);
  if (!flavour) return Unknown{flavour.reason};
  if (*flavour != "open") return false;
  const Maybe<std::string> version = first_line(root / "proc/version");
  if (version && is_kernel_5_12(*version)) return true;
  return Unknown{
      "dma-bufs for RDMA came with Linux 5.12; distributions may add them to older ones"};
}

std::optional<std::string> contradiction(MachineKind claim, const Environment& found) {
  const Maybe<bool> shown = shows(claim, found);
  if (!shown || *shown) return std::nullopt;
  switch (claim) {
    case MachineKind::vm:
      return "no hypervisor shows (CPUID, DMI, systemd-detect-virt)";
    case MachineKind::bare_metal:
      break;
    case MachineKind::container:
      return "nothing shows a container";
    case MachineKind::vgpu:
      return "not all GPUs are vGPUs (NVML)";
    case MachineKind::pass_through:
      return "not all GPUs are passed through (NVML)";
    case MachineKind::confidential:
      return "neither CPU nor GPU shows confidential computing";
    case MachineKind::interposed:
      return "no library stands before libcuda";
  }
  const Maybe<std::string>& hypervisor = found.virtualisation.hypervisor;
  return "there is a hypervisor" + (hypervisor ? ": " + *hypervisor : std::string());
}

Maybe<std::string> interposer(const char* library, const char* function) {
  void* const own = dlopen(library, RTLD_NOLOAD | RTLD_LAZY);
  if (own == nullptr) return Unknown{std::string(library) + " is not loaded"};
  void* const real = dlsym(own, function);
  dlclose(own);
  using Loaded = std::vector<std::pair<std::string, ElfW(Addr)>>;
  Loaded all;
  // Listed first: to open one within would take the loader's locks in the wrong order.
  dl_iterate_phdr(
      [](dl_phdr_info* loaded, size_t, void* data) {
        static_cast<Loaded*>(data)->emplace_back(loaded->dlpi_name, loaded->dlpi_addr);
        return 0;
      },
      &all);
  for (const auto& [file, address] : all) {
    void* const handle = dlopen(file.c_str(), RTLD_NOLOAD | RTLD_LAZY);
    if (handle == nullptr) continue;
    void* const named = dlsym(handle, function);
    dlclose(handle);
    Dl_info place{};
    // dlsym() also looks in what the library needs.
    const bool is_its_own = named != nullptr && dladdr(named, &place) != 0 &&
                            reinterpret_cast<ElfW(Addr)>(place.dli_fbase) == address;
    if (is_its_own && named != real) return file;
  }
  return std::string("none");
}

}  // namespace nearmetal
