// The kernels for Hopper alone against plain loops: odd shapes, random operands, poisoned results.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "models/cuda/device/check.h"
#include "models/cuda/kernels/pointwise_backward.h"
#include "models/cuda/kernels/stem.h"

namespace nearmetal::cuda {
namespace {

using Values = std::vector<double>;

float as_float(float value) { return value; }
float as_float(__half value) { return __half2float(value); }
float as_float(__nv_bfloat16 value) { return __bfloat162float(value); }

// Device memory with values of a type, and those values as the device sees them.
template <class T>
class Buffer {
 public:
  explicit Buffer(size_t size) : size_(size), memory_(allocate_device(size * sizeof(T))) {
    NM_CALL(cudaMemset(memory_.get(), 0xff, size * sizeof(T)));  // NaN
  }
  explicit Buffer(const Values& values) : Buffer(values.size()) {
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

Values random_values(size_t size, int seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> distribution(-1, 1);
  Values values(size);
  for (double& value : values) value = distribution(generator);
  return values;
}

double relative_error(const Values& actual, const Values& expected) {
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

using Types = ::testing::Types<__half, __nv_bfloat16>;
TYPED_TEST_SUITE(HopperKernels, Types);

TYPED_TEST(HopperKernels, PointwiseBackwardEqualsLoops) {
  using T = TypeParam;
  struct Channels {
    int out, in;
  };
  for (const auto [out, in] : {Channels{256, 64}, Channels{64, 256}, Channels{64, 64}}) {
    for (const int rows : {1, 64, 133, 64 * 140 + 1}) {
      const bool relu = rows != 133;
      const Buffer<T> dz(random_values(rows * out, 1)), y(random_values(rows * out, 2)),
          x(random_values(rows * in, 3)), weights(random_values(out * in, 4));
      const Buffer<float> state(random_values(5 * out, 5));
      const Buffer<T> dx(rows * in), weight_gradient(out * in);
      const PointwiseShape shape{rows, out, in};
      ASSERT_TRUE(pointwise_backward_fits(this->precision, shape, 9));
      const Buffer<float> partial(pointwise_backward_scratch_bytes(shape, this->multiprocessors_) /
                                  sizeof(float));
      PointwiseBackwardOperands operands;
      operands.dz = dz.get();
      operands.y = y.get();
      operands.state.a = state.get();
      operands.state.b = state.get() + out;
      operands.state.c = state.get() + 2 * out;
      operands.state.multiplier = state.get() + 3 * out;
      operands.state.shift = state.get() + 4 * out;
      operands.relu = relu;
      operands.x = x.get();
      operands.weights = weights.get();
      operands.dx = dx.get();
      operands.weight_gradient = weight_gradient.get();
      operands.partial_sums = partial.get();
      launch_pointwise_backward(this->precision, operands, shape, this->multiprocessors_, nullptr);

      const Values s = state.values(), d = dz.values(), at_y = y.values(), at_x = x.values(),
                   w = weights.values();
      Values expected_dx(rows * in), expected_weights(out * in);
      for (int row = 0; row < rows; ++row) {
        for (int o = 0; o < out; ++o) {
          const double value = at_y[row * out + o];
          // As the device computes it: the sign must agree.
          const bool passes =
              std::fma(static_cast<float>(value), static_cast<float>(s[3 * out + o]),
                       static_cast<float>(s[4 * out + o])) > 0;
          const double masked = relu && !passes ? 0 : d[row * out + o];
          const double gradient =
              this->rounded(s[o] * masked + s[out + o] * value + s[2 * out + o]);
          for (int i = 0; i < in; ++i) {
            expected_dx[row * in + i] += gradient * w[o * in + i];
            expected_weights[o * in + i] += gradient * at_x[row * in + i];
          }
        }
      }
      EXPECT_LT(relative_error(dx.values(), expected_dx), this->tolerance) << out << " " << rows;
      EXPECT_LT(relative_error(weight_gradient.values(), expected_weights), this->tolerance)
          << out << " " << rows;
    }
  }
}

// Calls body(result row, result column, image row, image column, tap) where a window covers a
// pixel.
template <class Body>
void for_each_tap(const StemShape& shape, Body body) {
  for (int row = 0; row < shape.output_height; ++row) {
    for (int column = 0; column < shape.output_width; ++column) {
      for (int tap = 0; tap < 49; ++tap) {
        const int y = 2 * row + tap / 7 - 3, x = 2 * column + tap % 7 - 3;
        if (y < 0 || x < 0 || y >= shape.input_height || x >= shape.input_width) continue;
        body(row, column, y, x, tap);
      }
    }
  }
}

// Odd heights, one and several tiles of columns, images smaller than a window.
const StemShape stem_shapes[] = {
    {2, 33, 40, 17, 20}, {3, 7, 6, 4, 3}, {1, 20, 230, 10, 115}, {1, 61, 224, 31, 112}};

TYPED_TEST(HopperKernels, StemForwardEqualsLoops) {
  using T = TypeParam;
  for (const StemShape& shape : stem_shapes) {
    const int64_t pixels = shape.batch * shape.input_height * shape.input_width;
    const int64_t results = shape.output_rows() * shape.output_width;
    const Buffer<T> images(random_values(pixels * 4, 1)), weights(random_values(64 * 49 * 4, 2));
    const Buffer<T> y(results * 64);
    const Buffer<float> sums(128);
    const Buffer<float> partial(ReductionScratch::partial_sums_bytes(this->multiprocessors_) / 4);
    const Buffer<unsigned> arrivals(ReductionScratch::arrivals_bytes() / sizeof(unsigned));
    NM_CALL(cudaMemset(arrivals.get(), 0, ReductionScratch::arrivals_bytes()));
    const StemForwardOperands operands{images.get(), weights.get(), y.get(), sums.get(),
                                       sums.get() + 64};
    const ReductionScratch scratch{partial.get(), arrivals.get(), this->multiprocessors_};
    for (int launch = 0; launch < 2; ++launch) {  // the first must leave the scratch in order
      launch_stem_forward(this->precision, operands, shape, scratch, nullptr);
    }
    const Values image = images.values(), w = weights.values(), actual = y.values();
    Values expected(results * 64), expected_sums(128);
    for (int64_t n = 0; n < shape.batch; ++n) {
      for_each_tap(shape, [&](int row, int column, int at_y, int at_x, int tap) {
        const int64_t pixel = (n * shape.input_height + at_y) * shape.input_width + at_x;
        const int64_t result = (n * shape.output_height + row) * shape.output_width + column;
        for (int o = 0; o < 64; ++o) {
          for (int c = 0; c < 4; ++c) {
            expected[result * 64 + o] += image[pixel * 4 + c] * w[(o * 49 + tap) * 4 + c];
          }
        }
      });
    }
    for (size_t i = 0; i < actual.size(); ++i) {
      expected_sums[i % 64] += actual[i];
      expected_sums[64 + i % 64] += actual[i] * actual[i];
    }
    EXPECT_LT(relative_error(actual, expected), this->tolerance) << shape.input_width;
    EXPECT_LT(relative_error(sums.values(), expected_sums), 1e-5) << shape.input_width;
  }
}

TYPED_TEST(HopperKernels, StemBackwardEqualsLoops) {
  using T = TypeParam;
  for (const StemShape& shape : stem_shapes) {
    const PoolShape pool{shape.batch,
                         64,
                         shape.output_height,
                         shape.output_width,
                         (shape.output_height + 1) / 2,
                         (shape.output_width + 1) / 2};
    const int64_t pixels = shape.batch * shape.input_height * shape.input_width;
    const Buffer<T> images(random_values(pixels * 4, 1)),
        x(random_values(pool.input().elements(), 2)),
        dz(random_values(pool.output().elements(), 3));
    const Buffer<float> state(random_values(3 * 64, 4));
    const int64_t pooled = pool.output().elements();
    std::vector<uint8_t> winners(pooled);
    std::mt19937 generator(5);
    for (uint8_t& winner : winners) winner = generator() % 9;
    const DeviceMemory winner = allocate_device(pooled);
    NM_CALL(cudaMemcpy(winner.get(), winners.data(), pooled, cudaMemcpyHostToDevice));
    const Buffer<T> weight_gradient(64 * 49 * 4);
    const Buffer<float> partial(stem_backward_scratch_bytes(this->multiprocessors_) / 4);
    StemBackwardOperands operands;
    operands.pool.dz = dz.get();
    operands.pool.winner = static_cast<const uint8_t*>(winner.get());
    operands.pool.x = x.get();
    operands.pool.state.a = state.get();
    operands.pool.state.b = state.get() + 64;
    operands.pool.state.c = state.get() + 128;
    operands.images = images.get();
    operands.weight_gradient = weight_gradient.get();
    operands.partial_sums = partial.get();
    launch_stem_backward(this->precision, operands, shape, pool, this->multiprocessors_, nullptr);

    const Values s = state.values(), at_x = x.values(), d = dz.values(), image = images.values();
    Values gradient(pool.input().elements());
    for (int64_t i = 0; i < pooled; ++i) {
      const int64_t pixel = i / 64, line = pixel / pool.output_width;
      const int64_t row = line % pool.output_height * 2 + winners[i] / 3 - 1;
      const int64_t column = pixel % pool.output_width * 2 + winners[i] % 3 - 1;
      if (row < 0 || column < 0 || row >= pool.input_height || column >= pool.input_width) continue;
      const int64_t n = line / pool.output_height;
      gradient[((n * pool.input_height + row) * pool.input_width + column) * 64 + i % 64] += d[i];
    }
    for (size_t i = 0; i < gradient.size(); ++i) {
      const size_t c = i % 64;
      gradient[i] = this->rounded(s[c] * gradient[i] + s[64 + c] * at_x[i] + s[128 + c]);
    }
    Values expected(64 * 49 * 4);
    for (int64_t n = 0; n < shape.batch; ++n) {
      for_each_tap(shape, [&](int row, int column, int at_y, int at_column, int tap) {
        const int64_t pixel = (n * shape.input_height + at_y) * shape.input_width + at_column;
        const int64_t result = (n * shape.output_height + row) * shape.output_width + column;
        for (int o = 0; o < 64; ++o) {
          for (int c = 0; c < 4; ++c) {
            expected[(o * 49 + tap) * 4 + c] += gradient[result * 64 + o] * image[pixel * 4 + c];
          }
        }
      });
    }
    EXPECT_LT(relative_error(weight_gradient.values(), expected), this->tolerance)
        << shape.input_width;
  }
}

}  // namespace
}  // namespace nearmetal::cuda
