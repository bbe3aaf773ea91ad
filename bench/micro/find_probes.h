// Collects what `nearmetal micro` can time here.
#pragma once

#include <vector>

#include "bench/cli/terminal.h"
#include "bench/run/prepare_device.h"
#include "comm/world.h"
#include "models/probe.h"

namespace nearmetal {

/// Fixed work of one thread, about a millisecond of it: what a clock that changes, a busy neighbour
/// or a hypervisor takes away shows in its slowest runs.
Probe cpu_quantum_probe();

/// With several ranks those of the paths between them, else those of this host and its device.
std::vector<Probe> find_probes(const PreparedDevice& device, World& world);

/// The kernels of a step, on a program that they keep (prepare_program()).
std::vector<Probe> find_step_probes(PreparedDevice& device, const Terminal& terminal);

}  // namespace nearmetal
