// Sums and maxima over the lanes of a warp, barriers of some warps, and copies to shared memory in
// the background (device code).
#pragma once

#include <cstdint>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define NM_HAS_COPY_ASYNC 1
#endif

namespace nearmetal::cuda {

inline constexpr int warp_lanes = 32;

/// Every lane gets the sum of all, in the same order.
__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int distance = warp_lanes / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffff, value, distance);
  }
  return value;
}

/// Lane L gets the sum of all lanes' values[L % count]; count is a power of two.
template <int count>
__device__ float warp_sum_of(const float (&values)[count]) {
  const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
  float left[count];
#pragma unroll
  for (int i = 0; i < count; ++i) left[i] = values[i];
  int distance = 1;
#pragma unroll
  for (int size = count; size > 1; size /= 2, distance *= 2) {
    // Of each pair a lane keeps one and adds what its partner has of it.
    const bool odd = (lane & distance) != 0;
#pragma unroll
    for (int i = 0; i < size / 2; ++i) {
      const float kept = odd ? left[2 * i + 1] : left[2 * i];
      const float given = odd ? left[2 * i] : left[2 * i + 1];
      left[i] = kept + __shfl_xor_sync(0xffffffff, given, distance);
    }
  }
#pragma unroll
  for (; distance < warp_lanes; distance *= 2) {
    left[0] += __shfl_xor_sync(0xffffffff, left[0], distance);
  }
  return left[0];
}

__device__ inline float warp_max(float value) {
#pragma unroll
  for (int distance = warp_lanes / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, distance));
  }
  return value;
}

/// Barriers 1 to 15 for parts of a block: of `threads` threads in all, some may go on at once.
__device__ inline void barrier_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

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
