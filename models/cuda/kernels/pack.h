// Sixteen bytes of one tensor, the unit in which our kernels read and write (device code).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "models/cuda/device/call.h"
#include "models/training_options.h"

namespace nearmetal::cuda {

template <class T>
inline constexpr int pack_width = 16 / static_cast<int>(sizeof(T));

template <class T>
struct alignas(16) Pack {
  T values[pack_width<T>];
};

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(__half value) { return __half2float(value); }
__device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

template <class T>
__device__ T from_float(float value);
template <>
__device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__device__ inline __half from_float<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

template <class T>
__device__ Pack<T> load_pack(const T* address) {
  return *reinterpret_cast<const Pack<T>*>(address);
}
template <class T>
__device__ void store_pack(T* address, const Pack<T>& pack) {
  *reinterpret_cast<Pack<T>*>(address) = pack;
}

/// One fp32 per channel for the channels of a pack. Addresses are multiples of 16 bytes.
template <class T>
struct alignas(16) Channels {
  float values[pack_width<T>];

  __device__ static Channels load(const float* address) {
    Channels channels;
#pragma unroll
    for (int i = 0; i < pack_width<T>; i += 4) {
      *reinterpret_cast<float4*>(channels.values + i) =
          *reinterpret_cast<const float4*>(address + i);
    }
    return channels;
  }
};

/// Two values per instruction, where the type has such instructions.
template <class T>
__device__ Channels<T> to_floats(const Pack<T>& pack) {
  Channels<T> result;
#pragma unroll
  for (int i = 0; i < pack_width<T>; i += 2) {
    float2 two;
    if constexpr (std::is_same_v<T, __half>) {
      two = __half22float2(*reinterpret_cast<const __half2*>(pack.values + i));
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      two = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(pack.values + i));
    } else {
      two = {pack.values[i], pack.values[i + 1]};
    }
    result.values[i] = two.x;
    result.values[i + 1] = two.y;
  }
  return result;
}
template <class T>
__device__ Pack<T> from_floats(const Channels<T>& channels) {
  Pack<T> pack;
#pragma unroll
  for (int i = 0; i < pack_width<T>; i += 2) {
    const float2 two = {channels.values[i], channels.values[i + 1]};
    if constexpr (std::is_same_v<T, __half>) {
      *reinterpret_cast<__half2*>(pack.values + i) = __float22half2_rn(two);
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      *reinterpret_cast<__nv_bfloat162*>(pack.values + i) = __float22bfloat162_rn(two);
    } else {
      pack.values[i] = two.x;
      pack.values[i + 1] = two.y;
    }
  }
  return pack;
}

/// Of a pack that was kept as 16 bytes: of 16-bit values each would take a register of its own.
template <class T>
__device__ Channels<T> floats_of(const uint4& packed) {
  return to_floats(*reinterpret_cast<const Pack<T>*>(&packed));
}
template <class T>
__device__ uint4 packed(const Channels<T>& values) {
  const Pack<T> pack = from_floats<T>(values);
  return *reinterpret_cast<const uint4*>(&pack);
}

/// An address in shared memory that the compiler takes no sum apart for: it adds what differs from
/// thread to thread last, and so keeps many sums in registers.
__device__ inline uint32_t shared_address(const void* pointer) {
  auto address = static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
  asm volatile("" : "+r"(address));
  return address;
}
/// 16 bytes of shared memory by one instruction, which the compiler else splits where it uses the
/// parts one after the other.
__device__ inline uint4 load_shared_16(uint32_t address) {
  uint4 packed;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(packed.x), "=r"(packed.y), "=r"(packed.z), "=r"(packed.w)
               : "r"(address)
               : "memory");
  return packed;
}

/// Two neighbours in one register.
template <class T>
__device__ float2 two_floats(uint32_t two) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half22float2(*reinterpret_cast<const __half2*>(&two));
  } else {
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&two));
  }
}

/// As many blocks as give each piece of work a thread.
inline unsigned blocks_for(int64_t pieces, int64_t threads) {
  return static_cast<unsigned>((pieces + threads - 1) / threads);
}

/// Threads of a block of kernels that have one for each piece of work, and the piece of this one.
inline constexpr int piece_threads = 256;
__device__ inline int64_t this_piece() { return int64_t{blockIdx.x} * piece_threads + threadIdx.x; }

/// How a kernel is launched, and where: for the message if that fails.
struct LaunchShape {
  dim3 blocks;
  unsigned threads;  // of a block
  cudaStream_t stream;
  int shared_bytes = 0;  // dynamic ones
  const char* file = __builtin_FILE();
  int line = __builtin_LINE();
};
inline LaunchShape each_piece(int64_t pieces, cudaStream_t stream,
                              const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return {blocks_for(pieces, piece_threads), piece_threads, stream, 0, file, line};
}

template <class Parameter, class Argument>
Parameter as_parameter(const Argument& argument) {
  if constexpr (std::is_pointer_v<Parameter>) {
    return static_cast<Parameter>(argument);
  } else {
    return argument;
  }
}
/// Launches a kernel; arguments that are addresses get the type of its parameters.
template <class... Parameters, class... Arguments>
void enqueue(const LaunchShape& how, void (*kernel)(Parameters...), const Arguments&... arguments) {
  if (how.shared_bytes > 0) {
    NM_CALL(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 how.shared_bytes));
  }
  kernel<<<how.blocks, how.threads, how.shared_bytes, how.stream>>>(
      as_parameter<Parameters>(arguments)...);
  require_ok(cudaGetLastError(), "kernel", how.file, how.line);
}

/// Calls `body`, a template of the element type of `precision`, which has 16 bits.
template <class Body>
void with_16_bit_type(Precision precision, Body&& body) {
  if (precision == Precision::fp16) return body.template operator()<__half>();
  if (precision == Precision::bf16) return body.template operator()<__nv_bfloat16>();
  no_kernel("this kernel is for types of 16 bits");
}

/// Calls `body`, a template of the element type of `precision`.
template <class Body>
void with_element_type(Precision precision, Body&& body) {
  if (precision == Precision::fp16) return body.template operator()<__half>();
  if (precision == Precision::bf16) return body.template operator()<__nv_bfloat16>();
  body.template operator()<float>();
}

}  // namespace nearmetal::cuda
