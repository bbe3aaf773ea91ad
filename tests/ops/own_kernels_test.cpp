// Kernels of ours as the tuner times and checks them.
#include "models/cuda/tuning/own_kernels.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "tests/ops/hopper_kernels.h"

namespace nearmetal::cuda {
namespace {

template <class T>
using OwnKernels = HopperKernels<T>;
TYPED_TEST_SUITE(OwnKernels, HopperTypes);

using Bytes = std::vector<std::byte>;

Bytes bytes_at(const void* device, int64_t count) {
  Bytes bytes(count);
  NM_CALL(cudaMemcpy(bytes.data(), device, count, cudaMemcpyDeviceToHost));
  return bytes;
}

struct Operands {
  Bytes x, weights, y, second_y;
  bool operator==(const Operands&) const = default;
};

Operands operands_of(const ConvolutionProblem& problem, const TuningBuffers& buffers) {
  const int64_t size = element_bytes(problem.precision);
  const int64_t y_bytes = problem.shape.output_elements() * size;
  const ConvolutionOperands forward = buffers.operands(problem.with(ConvolutionOp::forward));
  const void* y = buffers.operands(problem.with(ConvolutionOp::backward_data)).y;
  return {bytes_at(forward.x, problem.shape.input_elements() * size),
          bytes_at(forward.weights, problem.shape.weight_elements() * size), bytes_at(y, y_bytes),
          bytes_at(buffers.second_y(), y_bytes)};
}

// What one kernel left in an operand, infinities in fp16, the next would be checked on, and
// refused.
TYPED_TEST(OwnKernels, LeaveTheOperandsOfTheNext) {
  const ConvolutionProblem widens{
      ConvolutionOp::backward_data, {4, 64, 28, 28, 256, 28, 28}, this->precision};
  ConvolutionProblem narrows = widens;
  narrows.shape.input_channels = 256;
  narrows.shape.output_channels = 64;
  for (const ConvolutionProblem& problem : {widens, narrows}) {
    const TuningBuffers buffers({problem}, 9, this->multiprocessors_, nullptr);
    const Operands before = operands_of(problem, buffers);
    std::vector<std::string> keys;
    for (const OwnKernel& kernel : own_kernels(problem, 9, this->multiprocessors_)) {
      keys.push_back(kernel.key);
      for (int call = 0; call < 3; ++call) kernel.launch(buffers, nullptr);
      const bool passes = !kernel.check || std::isfinite(kernel.check(buffers, nullptr));
      EXPECT_TRUE(passes) << kernel.key;
      EXPECT_TRUE(operands_of(problem, buffers) == before) << kernel.key;
    }
    EXPECT_EQ(std::ranges::count(keys, fused_backward_key(problem)), 1);
    const bool by_moments = problem.shape.output_channels > problem.shape.input_channels;
    EXPECT_EQ(std::ranges::count(keys, moments_key(problem)), by_moments ? 1 : 0);
  }
}

}  // namespace
}  // namespace nearmetal::cuda
