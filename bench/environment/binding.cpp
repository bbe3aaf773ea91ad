#include "bench/environment/binding.h"

#include <hwloc.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "comm/layout/layout.h"

namespace nearmetal {
namespace {

using Bitmap = std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)>;

Bitmap bitmap(const std::vector<int64_t>& numbers = {}) {
  Bitmap bits(hwloc_bitmap_alloc(), hwloc_bitmap_free);
  for (const int64_t number : numbers) hwloc_bitmap_set(bits.get(), static_cast<unsigned>(number));
  return bits;
}

std::vector<int64_t> numbers_in(hwloc_const_bitmap_t bits) {
  std::vector<int64_t> numbers;
  for (int i = hwloc_bitmap_first(bits); i >= 0; i = hwloc_bitmap_next(bits, i)) {
    numbers.push_back(i);
  }
  return numbers;
}

std::vector<int64_t> own_cpus(const Topology& topology) {
  const Bitmap bits = bitmap();
  if (hwloc_get_cpubind(topology.get(), bits.get(), HWLOC_CPUBIND_THREAD) != 0) return {};
  return numbers_in(bits.get());
}

Maybe<int64_t> bound(int status, int64_t node, const char* what) {
  if (status == 0) return node;
  return Unknown{std::string("the system refuses to bind ") + what + ": " + std::strerror(errno)};
}

}  // namespace

// hwloc reads a copy of a system where HWLOC_FSROOT says so; only tests do.
Topology topology_of(const std::filesystem::path& root) {
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

Maybe<int64_t> node_to_bind_to(const RunConfig& config, const Gpu* gpu) {
  if (config.bind == Bind::off) return Unknown{"--bind off"};
  if (gpu == nullptr) return Unknown{"the rank computes on the CPUs that it was given"};
  if (!gpu->numa_node) {
    return Unknown{"the NUMA node of the GPU is not known: " + gpu->numa_node.reason};
  }
  if (*gpu->numa_node < 0) return Unknown{"the system does not say the NUMA node of the GPU (-1)"};
  return gpu->numa_node;
}

Maybe<std::vector<int64_t>> cpus_of_node(hwloc_topology* topology, int64_t node,
                                         const std::vector<int64_t>& allowed) {
  const std::string name = "NUMA node " + std::to_string(node);
  const hwloc_obj_t found =
      hwloc_get_numanode_obj_by_os_index(topology, static_cast<unsigned>(node));
  if (found == nullptr) return Unknown{name + " is not visible"};
  if (hwloc_bitmap_iszero(found->cpuset) != 0) return Unknown{name + " has no CPUs"};
  const Bitmap usable = bitmap(allowed);
  hwloc_bitmap_and(usable.get(), usable.get(), found->cpuset);
  if (hwloc_bitmap_iszero(usable.get()) == 0) return numbers_in(usable.get());
  return Unknown{name + " has the CPUs " + to_cpu_list(numbers_in(found->cpuset)) +
                 ", but the process may only use " + to_cpu_list(allowed)};
}

Binding bind_to_node(const Maybe<int64_t>& node) {
  Binding binding;
  const Topology topology = topology_of("/");
  if (!topology) {
    binding.numa_node = binding.memory_node = Unknown{"hwloc cannot read the topology"};
    return binding;
  }
  const std::vector<int64_t> allowed = own_cpus(topology);
  const auto cpus = node ? cpus_of_node(topology.get(), *node, allowed)
                         : Maybe<std::vector<int64_t>>(Unknown{node.reason});
  binding.numa_node = binding.memory_node = Unknown{cpus.reason};
  if (cpus) {
    const int status =
        hwloc_set_cpubind(topology.get(), bitmap(*cpus).get(), HWLOC_CPUBIND_PROCESS);
    binding.numa_node = bound(status, *node, "threads");
    // Without HWLOC_MEMBIND_STRICT: preferred, so that a full node does not end the run.
    const int memory_status =
        hwloc_set_membind(topology.get(), bitmap({*node}).get(), HWLOC_MEMBIND_BIND,
                          HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET);
    binding.memory_node = bound(memory_status, *node, "memory");
  }
  binding.cpus = to_cpu_list(own_cpus(topology));
  return binding;
}

}  // namespace nearmetal
