#include <arpa/inet.h>
#include <hwloc.h>
#include <ifaddrs.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>

#include "bench/environment/binding.h"
#include "bench/environment/environment.h"
#include "bench/environment/system_files.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

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

Maybe<int64_t> limit_of(int resource) {
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

constexpr size_t most_interfaces = 64;

NetworkInterface describe(const fs::path& folder, const std::string& name) {
  NetworkInterface found;
  found.name = name;
  const fs::path device = folder / "device";
  found.driver = link_name(device / "driver");
  found.state = first_line(folder / "operstate");
  found.mtu_bytes = number_in(folder / "mtu");
  const Maybe<int64_t> megabits = number_in(folder / "speed");
  found.bits_per_second = megabits && *megabits > 0
                              ? Maybe<int64_t>(1'000'000 * *megabits)
                              : Maybe<int64_t>(Unknown{"the driver does not report its speed"});
  found.numa_node = number_in(device / "numa_node");
  const std::vector<std::string> rdma = names_in(device / "infiniband");
  found.rdma_device = rdma.empty() ? Maybe<std::string>(Unknown{"it has none"}) : rdma.front();
  std::error_code ignored;
  if (fs::exists(device, ignored)) {
    found.virtual_function = fs::exists(device / "physfn", ignored);
  } else {
    found.virtual_function = Unknown{"it belongs to no device"};
  }
  return found;
}

}  // namespace

// hwloc reads a copy of a system where HWLOC_FSROOT says so; only tests do.
Topology topology_of(const fs::path& root) {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return {nullptr, hwloc_topology_destroy};
  setenv("HWLOC_HIDE_ERRORS", "2", 0);  // the report says what it misses
  Topology owner(topology, hwloc_topology_destroy);
  const bool copy = root != "/";
  if (copy) setenv("HWLOC_FSROOT", root.c_str(), 1);
  hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  const bool loaded = hwloc_topology_load(topology) == 0;
  if (copy) unsetenv("HWLOC_FSROOT");
  if (!loaded) owner.reset();
  return owner;
}

Processor find_processor(const fs::path& root) {
  Processor found;
  const Topology topology = topology_of(root);
  found.sockets = count_of(topology, HWLOC_OBJ_PACKAGE);
  found.cores = count_of(topology, HWLOC_OBJ_CORE);
  found.numa_nodes = count_of(topology, HWLOC_OBJ_NUMANODE);
  found.governor = governors(root);
  const auto told = [&](const char* key) { return value_in(root / "proc/cpuinfo", key, ':'); };
  const auto number = [&](const char* key) -> Maybe<int64_t> {
    const Maybe<std::string> text = told(key);
    if (!text) return Unknown{text.reason};
    return int64_t{std::strtoll(text->c_str(), nullptr, 10)};
  };
  found.vendor = told("vendor_id");
  found.family = number("cpu family");
  found.model = number("model");
  found.stepping = number("stepping");
  found.microcode = told("microcode");
  found.cache = told("cache size");
  const Maybe<int64_t> kilohertz =
      number_in(root / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
  found.largest_hertz =
      kilohertz ? Maybe<int64_t>(1000 * *kilohertz) : Maybe<int64_t>(Unknown{kilohertz.reason});
  return found;
}

Limits find_limits(const fs::path& root) {
  Limits found;
  found.locked_memory_bytes = limit_of(RLIMIT_MEMLOCK);
  found.open_files = limit_of(RLIMIT_NOFILE);
  found.shared_memory_bytes = shared_memory(root);
  found.huge_pages = memory_line(root, "HugePages_Total", 1);
  found.huge_page_bytes = memory_line(root, "Hugepagesize", 1024);
  const Maybe<int64_t> balancing = number_in(root / "proc/sys/kernel/numa_balancing");
  found.numa_balancing =
      balancing ? Maybe<bool>(*balancing != 0) : Maybe<bool>(Unknown{balancing.reason});
  const Maybe<std::string> modes = first_line(root / "sys/kernel/mm/transparent_hugepage/enabled");
  found.transparent_huge_pages = Unknown{modes.reason};
  if (modes && modes->find('[') != std::string::npos) {  // always [madvise] never
    const size_t start = modes->find('[') + 1;
    found.transparent_huge_pages = modes->substr(start, modes->find(']') - start);
  }
  return found;
}

std::vector<NetworkInterface> find_network(const fs::path& root) {
  std::vector<NetworkInterface> found;
  const fs::path folder = root / "sys/class/net";
  for (const std::string& name : names_in(folder)) {
    if (name == "lo" || found.size() == most_interfaces) continue;
    found.push_back(describe(folder / name, name));
  }
  return found;
}

std::set<std::string> interfaces_in(const std::string& network) {
  const size_t slash = network.find('/');
  in_addr wanted{};
  inet_pton(AF_INET, network.substr(0, slash).c_str(), &wanted);
  const int length = std::stoi(network.substr(slash + 1));
  const uint32_t mask = length == 0 ? 0 : htonl(~uint32_t{0} << (32 - length));
  ifaddrs* first = nullptr;
  std::set<std::string> names;
  if (getifaddrs(&first) != 0) return names;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    sockaddr_in address{};
    std::memcpy(&address, one->ifa_addr, sizeof address);
    if ((address.sin_addr.s_addr & mask) == (wanted.s_addr & mask)) names.insert(one->ifa_name);
  }
  return names;
}

}  // namespace nearmetal
