// A block of zeroed memory, aligned for vectors and backed by huge pages where they are offered.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace nearmetal::cpu {

struct HostMemoryDeleter {
  void operator()(void* memory) const { std::free(memory); }
};
using HostMemory = std::unique_ptr<void, HostMemoryDeleter>;

/// Every page is touched, so that no step pays for it. Throws std::bad_alloc.
HostMemory allocate_host(int64_t bytes);

/// Copies with all threads: one does not reach the bandwidth of the machine.
void parallel_copy(void* to, const void* from, int64_t bytes);

}  // namespace nearmetal::cpu
