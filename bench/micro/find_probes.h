// Collects what `nearmetal micro` can time here.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/cli/terminal.h"
#include "comm/world.h"
#include "models/backend.h"
#include "models/graph.h"
#include "models/probe.h"
#include "reports/document/types.h"

namespace nearmetal {

/// Fixed work of one thread, about a millisecond of it: what a clock that changes, a busy neighbour
/// or a hypervisor takes away shows in its slowest runs.
Probe cpu_quantum_probe();

/// What the probes of one command stand on.
struct ProbeSource {
  Backend& backend;
  RunConfig config;  // complete
  const Graph& graph;
  const DeviceInfo& device;
  World& world;
};

/// With several ranks those of the paths between them, else those of this host and its device.
std::vector<Probe> find_probes(const ProbeSource& source);

/// The kernels of a step: prepares a program, which the probes need and which they keep, with the
/// plans of the cache, where new ones are kept.
std::vector<Probe> find_step_probes(const ProbeSource& source, std::vector<Warning>& warnings);

}  // namespace nearmetal
