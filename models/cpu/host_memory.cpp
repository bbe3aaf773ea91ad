#include "models/cpu/host_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace nearmetal::cpu {
namespace {

constexpr int64_t huge_page_bytes = int64_t{2} << 20;
constexpr int64_t piece_bytes = int64_t{1} << 20;

template <class Body>
void for_each_piece(int64_t bytes, Body body) {
#pragma omp parallel for schedule(static)
  for (int64_t first = 0; first < bytes; first += piece_bytes) {
    body(first, static_cast<size_t>(std::min(piece_bytes, bytes - first)));
  }
}

}  // namespace

HostMemory allocate_host(int64_t bytes) {
  const int64_t rounded =
      std::max<int64_t>(1, (bytes + huge_page_bytes - 1) / huge_page_bytes) * huge_page_bytes;
  HostMemory memory(std::aligned_alloc(huge_page_bytes, rounded));
  if (memory == nullptr) throw std::bad_alloc();
  // Advice: without huge pages the memory works as well, if a little slower.
  madvise(memory.get(), rounded, MADV_HUGEPAGE);
  char* first_byte = static_cast<char*>(memory.get());
  for_each_piece(rounded,
                 [=](int64_t first, size_t size) { std::memset(first_byte + first, 0, size); });
  return memory;
}

void parallel_copy(void* to, const void* from, int64_t bytes) {
  for_each_piece(bytes, [=](int64_t first, size_t size) {
    std::memcpy(static_cast<char*>(to) + first, static_cast<const char*>(from) + first, size);
  });
}

}  // namespace nearmetal::cpu
