// Keeps a rank on the CPUs and the memory next to its GPU.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "reports/document/types.h"

struct hwloc_topology;

namespace nearmetal {

using Topology = std::unique_ptr<hwloc_topology, void (*)(hwloc_topology*)>;

/// The topology of this machine by hwloc, or of a copy of a system's files. It includes CPUs and
/// nodes that the process may not use, so that they can be named. Null if hwloc cannot read it.
Topology topology_of(const std::filesystem::path& root);

/// The NUMA node that `--bind` asks a rank to keep to: that of its GPU, or why none. `gpu`: null on
/// CPUs.
Maybe<int64_t> node_to_bind_to(const RunConfig& config, const Gpu* gpu);

/// The CPUs among `allowed`, which the process may use, that belong to a NUMA node, in ascending
/// order; or the reason why there are none to bind to.
Maybe<std::vector<int64_t>> cpus_of_node(hwloc_topology* topology, int64_t node,
                                         const std::vector<int64_t>& allowed);

/// Binds all threads of the process to the CPUs of the node, and what the calling thread and those
/// that it starts from now on allocate to its memory, as long as there is some left. What cannot be
/// done, or the system refuses, is in the result.
Binding bind_to_node(const Maybe<int64_t>& node);

}  // namespace nearmetal
