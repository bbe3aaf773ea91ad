// Hopper's asynchronous matrix product of a warpgroup, and the fences that it needs
// (device code for sm_90a alone).
//
// Operands in shared memory lie as panels, but where a product says otherwise: rows of 64 16-bit
// values (128 bytes), the 16-byte chunks of a row exchanged by its number, so that neither the
// copies nor the tensor cores meet bank conflicts. A panel is an operand in either direction: its
// rows may be the long side or the inner dimension of the product. PTX ISA, "Asynchronous warpgroup
// level matrix instructions".
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "models/cuda/kernels/warp.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define NM_HAS_WGMMA 1
#endif

namespace nearmetal::cuda {

inline constexpr int panel_columns = 64;
inline constexpr int panel_row_bytes = 128;
inline constexpr int panel_alignment = 1024;  // bytes

/// Byte offset of a 16-byte chunk (8 values) of a panel at a multiple of panel_alignment.
__host__ __device__ constexpr int panel_offset(int row, int chunk) {
  return row * panel_row_bytes + ((chunk ^ (row & 7)) << 4);
}

#ifdef NM_HAS_WGMMA

/// Dynamic shared memory from a multiple of panel_alignment on.
__device__ inline unsigned char* aligned_for_panels(unsigned char* bytes) {
  const auto start = static_cast<unsigned>(__cvta_generic_to_shared(bytes));
  return bytes + (panel_alignment - start % panel_alignment) % panel_alignment;
}

/// The descriptor of what the instruction reads: 64 columns, or rows where the panel is transposed.
/// Two groups of 8 rows are 1024 bytes apart in either direction. Of an operand of several
/// transposed panels the next begins `panel_step` bytes behind.
__device__ inline uint64_t panel_operand(const void* address, int panel_step = 16) {
  constexpr uint64_t swizzle_128_bytes = uint64_t{1} << 62;
  constexpr uint64_t between_groups = uint64_t{1024 >> 4} << 32;
  const uint64_t between_panels = static_cast<uint64_t>(panel_step >> 4) << 16;
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(address));
  return swizzle_128_bytes | between_groups | between_panels | (shared & 0x3FFFF) >> 4;
}

/// The operand that lies so many bytes behind this one.
__device__ inline uint64_t operand_behind(uint64_t operand, int bytes) {
  return operand + static_cast<uint64_t>(bytes >> 4);
}

// The results d[from] to d[from + 7] of a product, and the numbers of operands in its text.
#define NM_RESULTS(from)                                                                     \
  "+f"(d[from]), "+f"(d[from + 1]), "+f"(d[from + 2]), "+f"(d[from + 3]), "+f"(d[from + 4]), \
      "+f"(d[from + 5]), "+f"(d[from + 6]), "+f"(d[from + 7])
#define NM_0_TO_15 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define NM_16_TO_31 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NM_32_TO_55                                                                            \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
  "%50, %51, %52, %53, %54, %55"
#define NM_32_TO_63 NM_32_TO_55 ", %56, %57, %58, %59, %60, %61, %62, %63"
// A product, added to d where the operand `added` is not 0.
#define NM_WGMMA_TEXT(shape, type, results, operands, added)                              \
  "{\n"                                                                                   \
  ".reg .pred accumulate;\n"                                                              \
  "setp.ne.b32 accumulate, " added                                                        \
  ", 0;\n"                                                                                \
  "wgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" results "}, " operands \
  ";\n"                                                                                   \
  "}\n"
// NM_WGMMA(type) for the operands' type T.
#define NM_WGMMA_OF_T()                        \
  do {                                         \
    if constexpr (std::is_same_v<T, __half>) { \
      NM_WGMMA("f16");                         \
    } else {                                   \
      NM_WGMMA("bf16");                        \
    }                                          \
  } while (false)

/// d (64 x 64, spread over 128 threads) = a b, added to d if `accumulate`, for 16 of the inner
/// dimension. An operand that is not transposed has the inner dimension along its rows. Thread t of
/// warp w holds in d[4 j + 2 h + e] row 16 w + 8 h + t / 4, column 8 j + 2 (t % 4) + e.
template <class T, bool transposed_a, bool transposed_b>
__device__ void wgmma_m64n64k16(float (&d)[32], uint64_t a, uint64_t b, bool accumulate) {
#define NM_WGMMA(type)                                                        \
  asm volatile(NM_WGMMA_TEXT("m64n64k16", type, NM_0_TO_15 ", " NM_16_TO_31,  \
                             "%32, %33, accumulate, 1, 1, %35, %36", "%34")   \
               : NM_RESULTS(0), NM_RESULTS(8), NM_RESULTS(16), NM_RESULTS(24) \
               : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)),           \
                 "n"(static_cast<int>(transposed_a)), "n"(static_cast<int>(transposed_b)))
  NM_WGMMA_OF_T();
#undef NM_WGMMA
}

/// The same of 128 columns: d[4 j + 2 h + e] for j below 16. b is two panels (panel_operand()).
template <class T, bool transposed_a, bool transposed_b>
__device__ void wgmma_m64n128k16(float (&d)[64], uint64_t a, uint64_t b, bool accumulate) {
#define NM_WGMMA(type)                                                                         \
  asm volatile(NM_WGMMA_TEXT("m64n128k16", type, NM_0_TO_15 ", " NM_16_TO_31 ", " NM_32_TO_63, \
                             "%64, %65, accumulate, 1, 1, %67, %68", "%66")                    \
               : NM_RESULTS(0), NM_RESULTS(8), NM_RESULTS(16), NM_RESULTS(24), NM_RESULTS(32), \
                 NM_RESULTS(40), NM_RESULTS(48), NM_RESULTS(56)                                \
               : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)),                            \
                 "n"(static_cast<int>(transposed_a)), "n"(static_cast<int>(transposed_b)))
  NM_WGMMA_OF_T();
#undef NM_WGMMA
}

/// The same with `a` in registers, as in wgmma_m64n112k16; b is not transposed.
template <class T>
__device__ void wgmma_m64n64k16(float (&d)[32], const uint32_t (&a)[4], uint64_t b,
                                bool accumulate) {
#define NM_WGMMA(type)                                                                \
  asm volatile(NM_WGMMA_TEXT("m64n64k16", type, NM_0_TO_15 ", " NM_16_TO_31,          \
                             "{%32, %33, %34, %35}, %36, accumulate, 1, 1, 0", "%37") \
               : NM_RESULTS(0), NM_RESULTS(8), NM_RESULTS(16), NM_RESULTS(24)         \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                  \
                 "r"(static_cast<int>(accumulate)))
  NM_WGMMA_OF_T();
#undef NM_WGMMA
}

/// d (64 x 112) = a b, added to d if `accumulate`, for 16 of the inner dimension. a lies in
/// registers: two values each of rows t / 4 and t / 4 + 8 of the warp's 16, of inner index
/// 2 (t % 4), then of 8 more. b is described by row_operand(): its rows are the result's columns.
template <class T>
__device__ void wgmma_m64n112k16(float (&d)[56], const uint32_t (&a)[4], uint64_t b,
                                 bool accumulate) {
#define NM_WGMMA(type)                                                                         \
  asm volatile(NM_WGMMA_TEXT("m64n112k16", type, NM_0_TO_15 ", " NM_16_TO_31 ", " NM_32_TO_55, \
                             "{%56, %57, %58, %59}, %60, accumulate, 1, 1, 0", "%61")          \
               : NM_RESULTS(0), NM_RESULTS(8), NM_RESULTS(16), NM_RESULTS(24), NM_RESULTS(32), \
                 NM_RESULTS(40), NM_RESULTS(48)                                                \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                           \
                 "r"(static_cast<int>(accumulate)))
  NM_WGMMA_OF_T();
#undef NM_WGMMA
}

/// An operand without exchanged chunks: rows of the result's columns 16 bytes apart, of which each
/// begins 16 bytes, 8 values, into the one before.
__device__ inline uint64_t row_operand(const void* address) {
  constexpr uint64_t between_groups = uint64_t{128 >> 4} << 32;  // of 8 rows
  constexpr uint64_t between_chunks = uint64_t{16 >> 4} << 16;   // of 8 values
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(address));
  return between_groups | between_chunks | (shared & 0x3FFFF) >> 4;
}

/// d (64 x 32) = a b, added to d, for 16 of the inner dimension; `a` is a transposed panel, b is
/// described by column_operand(). d[4 j + 2 h + e] as in wgmma_m64n64k16.
template <class T>
__device__ void wgmma_m64n32k16(float (&d)[16], uint64_t a, uint64_t b) {
#define NM_WGMMA(type)                                                                     \
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type " {" NM_0_TO_15 \
               "}, "                                                                       \
               "%16, %17, 1, 1, 1, 1, 1;\n"                                                \
               : NM_RESULTS(0), NM_RESULTS(8)                                              \
               : "l"(a), "l"(b))
  NM_WGMMA_OF_T();
#undef NM_WGMMA
}

/// As row_operand(), but its rows are the inner dimension.
__device__ inline uint64_t column_operand(const void* address) {
  constexpr uint64_t between_chunks = uint64_t{16 >> 4} << 32;   // of 8 values
  constexpr uint64_t between_groups = uint64_t{128 >> 4} << 16;  // of 8 rows
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(address));
  return between_groups | between_chunks | (shared & 0x3FFFF) >> 4;
}

/// Stores four 8 x 8 matrices transposed, each thread two neighbours of a row of each: the 16 bytes
/// at the address of lane 8 m + i get column i of matrix m.
__device__ inline void stmatrix_x4_trans(void* address, const uint32_t (&matrices)[4]) {
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(address));
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared),
      "r"(matrices[0]), "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
      : "memory");
}
/// Arrives at a barrier of barrier_sync() and goes on at once.
__device__ inline void barrier_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/// Before the first product after registers or shared memory were written.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// After the last of a group of products, none of which is done yet.
__device__ inline void wgmma_commit_group() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until all products of this warpgroup are done.
__device__ inline void wgmma_wait_all() {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
/// Keeps uses of a result behind the wait for it.
template <int n>
__device__ void use_results(float (&d)[n]) {
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
/// Makes this thread's writes to shared memory visible to products, after a barrier.
__device__ inline void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Changes the registers of each thread of this warpgroup, in steps of 8.
template <int registers>
__device__ void decrease_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ void increase_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

#endif  // NM_HAS_WGMMA

}  // namespace nearmetal::cuda
