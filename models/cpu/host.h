// What this machine lets the process use: processors, memory, instruction set.
#pragma once

#include <cstdint>

#include "models/program.h"

namespace nearmetal::cpu {

/// Processors of the affinity mask, fewer where a cgroup's CPU quota allows less; at least 1.
int usable_threads();

/// Bytes that can be allocated without swapping or meeting a cgroup's limit.
int64_t available_memory_bytes();

/// Whether oneDNN trains with bf16 here: that takes AVX-512 with byte and word instructions.
bool trains_bf16();

/// Memory is what the process may use: that of the machine, or its cgroup's limit.
DeviceInfo describe_host();

}  // namespace nearmetal::cpu
