// The resources of this machine that the process may use: processors, memory, instruction set.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

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

/// `run` again and again, after once apart.
std::function<TimedRuns()> timed_again_and_again(std::function<void()> run);

/// Copies within memory, and dense products in fp32 or bf16, by all threads.
Probe host_copy_probe();
Probe host_product_probe(Precision precision);
std::vector<Probe> host_probes();

/// A block of zeroed memory, aligned for vectors and backed by huge pages where they are offered.
struct HostMemoryDeleter {
  void operator()(void* memory) const { std::free(memory); }
};
using HostMemory = std::unique_ptr<void, HostMemoryDeleter>;

/// Every page is touched, so that no step pays for it. Throws std::bad_alloc.
HostMemory allocate_host(int64_t bytes);

/// Copies with all threads: one does not reach the bandwidth of the machine.
void parallel_copy(void* to, const void* from, int64_t bytes);

}  // namespace nearmetal::cpu
