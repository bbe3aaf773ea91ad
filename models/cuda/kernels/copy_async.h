// Copies to shared memory in the background (device code for compute capability 8.0 and later).
#pragma once

#include <cstdint>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define NM_HAS_COPY_ASYNC 1
#endif

namespace nearmetal::cuda {

#ifdef NM_HAS_COPY_ASYNC

/// Copies 16 bytes to shared memory in the background, zeros if not `inside`.
__device__ inline void cp_async_16(void* shared, const void* global, bool inside) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global),
               "r"(inside ? 16 : 0)
               : "memory");
}
__device__ inline void cp_async_commit_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most the last `pending` groups of this thread's copies are under way.
template <int pending>
__device__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

#endif  // NM_HAS_COPY_ASYNC

}  // namespace nearmetal::cuda
