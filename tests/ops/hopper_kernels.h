// Shared by the tests of single kernels.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "models/cuda/device/check.h"
#include "models/cuda/kernels/batch_norm.h"
#include "models/training_options.h"

namespace nearmetal::cuda {

using Values = std::vector<double>;

inline float as_float(float value) { return value; }
inline float as_float(uint8_t value) { return value; }
inline float as_float(__half value) { return __half2float(value); }
inline float as_float(__nv_bfloat16 value) { return __bfloat162float(value); }

// Device memory with values of a type, and those values as the device sees them.
template <class T>
class Buffer {
 public:
  explicit Buffer(size_t size) : size_(size), memory_(allocate_device(size * sizeof(T))) {
    NM_CALL(cudaMemset(memory_.get(), 0xff, size * sizeof(T)));  // NaN
  }
  explicit Buffer(const Values& values) : Buffer(values.size()) { set(values); }
  void set(const Values& values) {
    std::vector<T> host;
    for (const double value : values) host.push_back(T(static_cast<float>(value)));
    NM_CALL(cudaMemcpy(memory_.get(), host.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  T* get() const { return static_cast<T*>(memory_.get()); }
  Values values() const {
    std::vector<T> host(size_);
    NM_CALL(cudaMemcpy(host.data(), memory_.get(), size_ * sizeof(T), cudaMemcpyDeviceToHost));
    Values result;
    for (const T& value : host) result.push_back(as_float(value));
    return result;
  }

 private:
  size_t size_;
  DeviceMemory memory_;
};

// Scratch memory that the reductions of one stream share.
class SumsScratch {
 public:
  explicit SumsScratch(int multiprocessors)
      : multiprocessors_(multiprocessors),
        partial_sums_(ReductionScratch::partial_sums_bytes(multiprocessors) / sizeof(float)),
        arrivals_(Values(ReductionScratch::arrivals_bytes() / sizeof(unsigned))) {}
  ReductionScratch get() const {
    return {partial_sums_.get(), reinterpret_cast<unsigned*>(arrivals_.get()), multiprocessors_};
  }

 private:
  int multiprocessors_;
  Buffer<float> partial_sums_, arrivals_;
};

inline Values random_values(size_t size, int seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> distribution(-1, 1);
  Values values(size);
  for (double& value : values) value = distribution(generator);
  return values;
}

inline double relative_error(const Values& actual, const Values& expected) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(error / norm);
}

template <class T>
class HopperKernels : public ::testing::Test {
 protected:
  static constexpr bool is_fp16 = std::is_same_v<T, __half>;
  static constexpr Precision precision = is_fp16 ? Precision::fp16 : Precision::bf16;
  // Rounding once to 11 or 8 significant bits; sums are in fp32.
  static constexpr double tolerance = is_fp16 ? 0x1p-11 : 0x1p-8;

  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
      cudaGetLastError();
      GTEST_SKIP() << "no GPU";
    }
    cudaDeviceProp properties{};
    NM_CALL(cudaGetDeviceProperties(&properties, 0));
    if (properties.major != 9) GTEST_SKIP() << "no Hopper GPU but a " << properties.name;
    multiprocessors_ = properties.multiProcessorCount;
  }
  static double rounded(double value) { return as_float(T(static_cast<float>(value))); }

  int multiprocessors_ = 1;
};

using HopperTypes = ::testing::Types<__half, __nv_bfloat16>;

}  // namespace nearmetal::cuda
