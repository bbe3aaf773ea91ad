#include "bench/environment/environment.h"

#include <arpa/inet.h>
#include <hwloc.h>
#include <ifaddrs.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>

#include "base/errors.h"
#include "base/sha256.h"
#include "base/text.h"
#include "bench/environment/binding.h"
#include "bench/environment/rdma.h"
#include "bench/environment/system_files.h"
#include "models/control_groups.h"
#include "reports/json/json.h"
#include "reports/json/report_files.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

Maybe<bool> hypervisor_flag(const fs::path& root) {
  const Maybe<std::string> flags = value_in(root / "proc/cpuinfo", "flags", ':');
  if (!flags) return Unknown{flags.reason};
  return (" " + *flags + " ").find(" hypervisor ") != std::string::npos;
}

// The number at the start of the value of a key, in /proc/cpuinfo or /proc/meminfo.
Maybe<int64_t> number_of(const fs::path& path, const char* key) {
  const Maybe<std::string> text = value_in(path, key, ':');
  if (!text) return Unknown{text.reason};
  return int64_t{std::strtoll(text->c_str(), nullptr, 10)};
}

// A limit of the control groups, of which some may be readable.
template <class T>
Maybe<T> limit_of(const std::optional<T>& limit, bool readable) {
  if (limit) return *limit;
  return Unknown{readable ? no_limit : "no control group could be read"};
}

// A setting as NCCL reads it (src/misc/param.cc): the variable, else the user's file, else that of
// the machine. Empty: none sets it.
std::string nccl_setting(const char* name, const fs::path& root, const SystemQueries& queries) {
  if (std::string value = queries.variable(name); !value.empty()) return value;
  fs::path of_user = queries.variable("NCCL_CONF_FILE");
  if (of_user.empty()) of_user = fs::path(queries.variable("HOME")) / ".nccl.conf";
  for (const fs::path& file : {of_user, fs::path("/etc/nccl.conf")}) {
    if (const auto found = value_in(root / file.relative_path(), name, '=').value) return *found;
  }
  return {};
}

// The file that NCCL looks for (src/graph/topo.cc): what its setting names, else the file that a
// hypervisor's NVIDIA Topology Daemon gives its guests.
Maybe<std::string> nccl_topology_file(const fs::path& root, const SystemQueries& queries) {
  const std::string of_guests = "/var/run/nvidia-topologyd/virtualTopology.xml";
  const std::string named = nccl_setting("NCCL_TOPO_FILE", root, queries);
  std::string file = named.empty() ? of_guests : named;
  if (is_there(root / fs::path(file).relative_path())) return file;
  if (!named.empty()) return Unknown{"NCCL_TOPO_FILE names " + named + ", which is not there"};
  return Unknown{"NCCL_TOPO_FILE is not set, and " + of_guests + " is not there"};
}

Maybe<int64_t> count_of(const Topology& topology, hwloc_obj_type_t type) {
  if (!topology) return Unknown{"hwloc cannot read the topology"};
  const int count = hwloc_get_nbobjs_by_type(topology.get(), type);
  if (count <= 0) return Unknown{"hwloc finds none: the system does not show its topology"};
  return count;
}

Maybe<std::string> governors(const fs::path& root) {
  std::set<std::string> names;
  const fs::path cpus = root / "sys/devices/system/cpu";
  for (const std::string& cpu : names_in(cpus)) {
    const Maybe<std::string> name = first_line(cpus / cpu / "cpufreq/scaling_governor");
    if (cpu.starts_with("cpu") && name) names.insert(*name);
  }
  if (names.empty()) return Unknown{"the kernel does not steer the frequency (no cpufreq)"};
  return joined({names.begin(), names.end()});
}

Maybe<int64_t> limit_of_process(int resource) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) {
    return Unknown{"getrlimit failed"};
  }
  if (limit.rlim_cur == RLIM_INFINITY) return Unknown{no_limit};
  return static_cast<int64_t>(limit.rlim_cur);
}

Maybe<int64_t> shared_memory(const fs::path& root) {
  struct statvfs system {};
  if (statvfs((root / "dev/shm").c_str(), &system) != 0) return Unknown{"/dev/shm is not there"};
  return static_cast<int64_t>(system.f_blocks * system.f_frsize);
}

// By type, of a message of the kernel or of one of its attributes.
std::map<int, const rtattr*> attributes_in(const void* first, int64_t bytes) {
  std::map<int, const rtattr*> found;
  const auto* one = static_cast<const rtattr*>(first);
  for (; RTA_OK(one, bytes); one = RTA_NEXT(one, bytes)) found[one->rta_type] = one;
  return found;
}

using TrafficLimits = std::map<int, Maybe<int64_t>>;  // in bits per second, by interface

// What tc limits of all that leaves by an interface; unknown where it shapes in other ways.
void add_limit(const nlmsghdr* message, TrafficLimits& limits) {
  // Those that may limit a rate; others order what is sent, or drop it.
  constexpr std::array shapers = {"tbf", "htb", "hfsc", "cbq", "cake", "netem", "taprio"};
  const auto* of = static_cast<const tcmsg*>(NLMSG_DATA(message));
  auto found = attributes_in(TCA_RTA(of), NLMSG_PAYLOAD(message, sizeof *of));
  const rtattr *kind = found[TCA_KIND], *options = found[TCA_OPTIONS];
  if (!kind || !options) return;
  const std::string shaper = static_cast<const char*>(RTA_DATA(kind));
  if (std::ranges::find(shapers, shaper) == shapers.end()) return;
  auto bucket = attributes_in(RTA_DATA(options), RTA_PAYLOAD(options));
  const rtattr *rate = bucket[TCA_TBF_PARMS], *wide = bucket[TCA_TBF_RATE64];
  Maybe<int64_t>& limit = limits[of->tcm_ifindex] = Unknown{"tc shapes it by " + shaper};
  if (shaper != "tbf" || of->tcm_parent != TC_H_ROOT || rate == nullptr) return;
  // In bytes per second; where 32 bits do not hold it, by itself.
  limit = 8 * (wide ? *static_cast<int64_t*>(RTA_DATA(wide))
                    : int64_t{static_cast<tc_tbf_qopt*>(RTA_DATA(rate))->rate.rate});
}

// Of the network namespace of this process.
TrafficLimits traffic_limits() {
  struct {
    nlmsghdr header{NLMSG_LENGTH(sizeof(tcmsg)), RTM_GETQDISC, NLM_F_REQUEST | NLM_F_DUMP, 0, 0};
    tcmsg message{};
  } const request;
  TrafficLimits limits;
  std::array<nlmsghdr, 4096> answer{};
  const int file = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  for (bool more = send(file, &request, sizeof request, 0) > 0; more;) {
    ssize_t left = recv(file, answer.data(), sizeof answer, 0);
    more = false;
    const nlmsghdr* next = answer.data();
    for (; NLMSG_OK(next, left); next = NLMSG_NEXT(next, left)) {
      more = next->nlmsg_type == RTM_NEWQDISC;  // the end, and an error, are of other types
      if (more) add_limit(next, limits);
    }
  }
  close(file);
  return limits;
}

constexpr size_t most_interfaces = 64;

NetworkInterface describe(const fs::path& folder, const std::string& name) {
  NetworkInterface found;
  found.name = name;
  const fs::path device = folder / "device";
  found.driver = link_name(device / "driver");
  found.state = first_line(folder / "operstate");
  found.mtu_bytes = number_in(folder / "mtu");
  const Maybe<int64_t> megabits = number_in(folder / "speed");
  found.bits_per_second = Unknown{"the driver does not report its speed"};
  if (megabits && *megabits > 0) found.bits_per_second = 1'000'000 * *megabits;
  found.numa_node = number_in(device / "numa_node");
  const std::vector<std::string> rdma = names_in(device / "infiniband");
  found.rdma_device = rdma.empty() ? Maybe<std::string>(Unknown{"it has none"}) : rdma.front();
  found.virtual_function = Unknown{"it belongs to no device"};
  if (is_there(device)) found.virtual_function = is_there(device / "physfn");
  return found;
}

// Sockets, cores and NUMA nodes by hwloc. Where `root` is not "/", it reads a copy of a system's
// files.
Processor find_processor(const fs::path& root) {
  Processor found;
  const Topology topology = topology_of(root);
  found.sockets = count_of(topology, HWLOC_OBJ_PACKAGE);
  found.cores = count_of(topology, HWLOC_OBJ_CORE);
  found.numa_nodes = count_of(topology, HWLOC_OBJ_NUMANODE);
  found.governor = governors(root);
  const fs::path info = root / "proc/cpuinfo";
  found.vendor = value_in(info, "vendor_id", ':');
  found.family = number_of(info, "cpu family");
  found.model = number_of(info, "model");
  found.stepping = number_of(info, "stepping");
  found.microcode = value_in(info, "microcode", ':');
  found.cache = value_in(info, "cache size", ':');
  found.largest_hertz = scaled<int64_t>(
      number_in(root / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"), 1000);
  return found;
}

using AddressBytes = std::array<uint8_t, sizeof(in6_addr)>;  // the first 4 of IPv4

AddressBytes bytes_of(const sockaddr& address) {
  AddressBytes bytes{};
  if (address.sa_family == AF_INET6) {
    std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, 16);
  } else {
    std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
  }
  return bytes;
}

bool begins_alike(const AddressBytes& a, const AddressBytes& b, int bits) {
  if (std::memcmp(a.data(), b.data(), bits / 8) != 0) return false;
  const int left = bits % 8;
  return left == 0 || (a[bits / 8] ^ b[bits / 8]) >> (8 - left) == 0;
}

// Tried on this process itself, which only a filter of system calls refuses: Docker's does so on
// kernels before 4.8.
Maybe<bool> cross_memory_attach(const fs::path& root) {
  if (root != "/") return Unknown{"it is tried on this system alone"};
  char from = 1, to = 0;
  const iovec local{&to, 1}, remote{&from, 1};
  if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1) return true;
  if (errno == EPERM || errno == ENOSYS) return false;
  return Unknown{std::string("process_vm_readv: ") + std::strerror(errno)};
}

Limits find_limits(const fs::path& root) {
  Limits found;
  found.locked_memory_bytes = limit_of_process(RLIMIT_MEMLOCK);
  found.open_files = limit_of_process(RLIMIT_NOFILE);
  found.shared_memory_bytes = shared_memory(root);
  found.huge_pages = number_of(root / "proc/meminfo", "HugePages_Total");
  found.huge_page_bytes = scaled<int64_t>(number_of(root / "proc/meminfo", "Hugepagesize"), 1024);
  found.cross_memory_attach = cross_memory_attach(root);
  found.numa_balancing = truth(number_in(root / "proc/sys/kernel/numa_balancing"));
  const Maybe<std::string> modes = first_line(root / "sys/kernel/mm/transparent_hugepage/enabled");
  found.transparent_huge_pages = Unknown{modes.reason};
  if (modes && modes->find('[') != std::string::npos) {  // always [madvise] never
    const size_t start = modes->find('[') + 1;
    found.transparent_huge_pages = modes->substr(start, modes->find(']') - start);
  }
  return found;
}

// The lowest mount at or above the working folder; a later one hides those before it.
Storage find_storage(const fs::path& root) {
  Storage found;
  found.file_system = found.device = Unknown{"/proc/self/mountinfo names no mount above it"};
  std::error_code error;
  const std::string folder = fs::current_path(error).string();
  const std::string escaped = replaced(folder, " ", "\\040") + "/";  // as the kernel writes it
  std::ifstream mounts(root / "proc/self/mountinfo");
  size_t longest = 0;
  // 36 35 98:0 /top /mnt rw,noatime master:1 - ext3 /dev/root rw: man 5 proc
  for (std::string line, skipped, point; std::getline(mounts, line);) {
    std::istringstream words(line);
    for (int i = 0; i < 4; ++i) words >> skipped;
    words >> point;
    const bool is_above = escaped.starts_with(point.ends_with('/') ? point : point + "/");
    const size_t end = line.find(" - ");
    if (!is_above || point.size() < longest || end == line.npos) continue;
    longest = point.size();
    std::string type, source;
    std::istringstream(line.substr(end + 3)) >> type >> source;
    found.file_system = type;
    found.device = source;
  }
  struct statvfs system {};
  found.free_bytes = Unknown{"statvfs failed"};
  if (statvfs(folder.c_str(), &system) == 0) {
    found.free_bytes = static_cast<int64_t>(system.f_bavail * system.f_frsize);
  }
  return found;
}

}  // namespace

bool may_record_variable(std::string_view name) {
  constexpr std::array prefixes = {"NCCL_",   "CUDA_",   "NVIDIA_",        "CUDNN_", "OMP_",
                                   "GOMP_",   "KMP_",    "OMPI_MCA_",      "UCX_",   "DNNL_",
                                   "ONEDNN_", "MALLOC_", "GLIBC_TUNABLES", "HWLOC_", "PMIX_MCA_"};
  return std::ranges::any_of(prefixes,
                             [&](const char* prefix) { return name.starts_with(prefix); });
}

Environment find_environment(const fs::path& root, const SystemQueries& queries) {
  Environment found;
  utsname system{};
  uname(&system);
  found.host_name = system.nodename;
  found.boot_id = first_line(root / "proc/sys/kernel/random/boot_id");
  found.machine_id = first_line(root / "etc/machine-id");
  // Who knows it could ask other software for the same machine; man 5 machine-id.
  if (found.machine_id) found.machine_id = sha256("nearmetal " + *found.machine_id);
  found.kernel = std::string(system.sysname) + " " + system.release;
  found.architecture = system.machine;
  found.distribution = value_in(root / "etc/os-release", "PRETTY_NAME", '=');
  found.cpu_model = value_in(root / "proc/cpuinfo", "model name", ':');
  found.logical_cpus = std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
  const std::vector<int64_t> usable = usable_cpus();
  found.usable_cpus = usable.empty() ? found.logical_cpus : std::ssize(usable);
  const GroupLimits limits = group_limits(root);
  found.cpu_quota = limit_of(limits.cpus, limits.knows_cpus);
  found.memory_bytes = scaled<int64_t>(number_of(root / "proc/meminfo", "MemTotal"), 1024);
  found.memory_limit_bytes = limit_of(limits.memory_bytes, limits.knows_memory);
  found.hypervisor_cpu_flag = hypervisor_flag(root);
  found.virtualisation = find_virtualisation(root, queries, found.hypervisor_cpu_flag);
  found.virtualisation.interposer = interposer();
  found.processor = find_processor(root);
  found.limits = find_limits(root);
  found.storage = find_storage(root);
  found.network = find_network(root);
  found.rdma = find_rdma(root);
  found.nccl_topology_file = nccl_topology_file(root, queries);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t at = text.find('=');
    if (at != text.npos && may_record_variable(std::string_view(text).substr(0, at))) {
      found.variables[text.substr(0, at)] = text.substr(at + 1);
    }
  }
  const auto is_set = [&](const char* name) { return !queries.variable(name).empty(); };
  found.ld_preload = is_set("LD_PRELOAD");
  found.ld_library_path = is_set("LD_LIBRARY_PATH");
  found.ld_audit = is_set("LD_AUDIT");
  return found;
}

std::map<std::string, std::string> read_host_facts(const std::filesystem::path& path) {
  try {
    return host_facts_from_json(file_text(path));
  } catch (const InvalidReport& error) {
    throw std::invalid_argument("--host-facts " + path.string() + ": " + error.what());
  }
}

std::vector<NetworkInterface> find_network(const fs::path& root) {
  std::vector<NetworkInterface> found;
  const fs::path folder = root / "sys/class/net";
  const TrafficLimits limits = root == "/" ? traffic_limits() : TrafficLimits{};
  for (const std::string& name : names_in(folder)) {
    if (name == "lo" || found.size() == most_interfaces) continue;
    Maybe<int64_t>& rate = found.emplace_back(describe(folder / name, name)).bits_per_second;
    const auto limit = limits.find(static_cast<int>(if_nametoindex(name.c_str())));
    if (limit == limits.end()) continue;
    // Of what has no device behind it, such as veth, the speed is some number.
    const bool is_nic = limit->second && rate && is_there(folder / name / "device");
    rate = is_nic ? std::min(*rate, *limit->second) : limit->second;
  }
  return found;
}

std::set<std::string> interfaces_in(const std::string& network) {
  const size_t slash = network.find('/');
  const bool is_ipv6 = network.find(':') != network.npos;
  const int family = is_ipv6 ? AF_INET6 : AF_INET;
  AddressBytes wanted{};
  inet_pton(family, network.substr(0, slash).c_str(), wanted.data());
  const int bits = std::stoi(network.substr(slash + 1));
  ifaddrs* first = nullptr;
  std::set<std::string> names;
  if (getifaddrs(&first) != 0) return names;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family) continue;
    if (begins_alike(bytes_of(*one->ifa_addr), wanted, bits)) names.insert(one->ifa_name);
  }
  return names;
}

}  // namespace nearmetal
