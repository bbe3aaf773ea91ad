// Sums and maxima over the lanes of a warp, barriers of some warps, copies to shared memory in the
// background, and products by tensor cores (device code).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

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

// Products of 16 x 16 blocks of 16-bit values by the tensor cores of one warp.
//
// Lane L has rows L / 4 and L / 4 + 8 of a result [16, 8], in each of them columns L % 4 x 2 and
// the next: elements 0, 1 and 2, 3. Two such results side by side are, rounded, a first operand of
// the next product. PTX ISA, "Matrix Fragments for mma.m16n8k16".

/// Two values as they lie in memory.
template <class T>
__device__ uint32_t two_rounded(float first, float second) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 two = __floats2half2_rn(first, second);
    return *reinterpret_cast<const uint32_t*>(&two);
  } else {
    const __nv_bfloat162 two = __floats2bfloat162_rn(first, second);
    return *reinterpret_cast<const uint32_t*>(&two);
  }
}

/// The same behind a ReLU, which leaves a NaN.
template <class T>
__device__ uint32_t two_rectified(float first, float second) {
  uint32_t two;
  if constexpr (std::is_same_v<T, __half>) {
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(second), "f"(first));
  }
  return two;
}

/// Four matrices of 8 x 8 values: lanes 8 m to 8 m + 7 name the rows of matrix m, 16 bytes each,
/// and lane L gets values L % 4 x 2 and the next of row L / 4 of each; `transposed`: of column L
/// / 4.
template <bool transposed>
__device__ void load_matrices(uint32_t (&matrices)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
                 : "r"(address)
                 : "memory");
  }
}

/// d [16, 8] += a [16, 16] b [16, 8], in fp32.
template <class T>
__device__ void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b_first,
                             uint32_t b_second) {
  if constexpr (std::is_same_v<T, __half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_first), "r"(b_second));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_first), "r"(b_second));
  }
}

#endif  // NM_HAS_COPY_ASYNC

}  // namespace nearmetal::cuda
