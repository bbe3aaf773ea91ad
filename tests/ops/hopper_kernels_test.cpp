// The kernels for Hopper alone against plain loops: odd shapes, random operands, poisoned results.
#include "tests/ops/hopper_kernels.h"

#include "models/cuda/kernels/pointwise/backward.h"
#include "models/cuda/kernels/stem.h"

namespace nearmetal::cuda {
namespace {

TYPED_TEST_SUITE(HopperKernels, HopperTypes);

// A convolution's backward pass with random operands, and its results by loops.
template <class T>
struct PointwiseBackward {
  const PointwiseShape shape;
  const Buffer<T> dz, y, x, weights;
  const Buffer<float> state;
  const Buffer<T> dx, weight_gradient;
  const Buffer<float> partial_sums;
  PointwiseBackwardOperands operands;
  Values expected_dx, expected_weights;

  PointwiseBackward(const PointwiseShape& shape, bool relu, const Values& x, int multiprocessors)
      : shape(shape),
        dz(random_values(shape.rows * shape.output_channels, 1)),
        y(random_values(shape.rows * shape.output_channels, 2)),
        x(x),
        weights(random_values(shape.output_channels * shape.input_channels, 4)),
        state(random_values(5 * shape.output_channels, 5)),
        dx(x.size()),
        weight_gradient(shape.output_channels * shape.input_channels),
        partial_sums(pointwise_backward_scratch_bytes(shape, multiprocessors) / sizeof(float)) {
    operands.dz = dz.get();
    operands.y = y.get();
    operands.state.a = state.get();
    operands.state.b = state.get() + shape.output_channels;
    operands.state.c = state.get() + 2 * shape.output_channels;
    operands.state.multiplier = state.get() + 3 * shape.output_channels;
    operands.state.shift = state.get() + 4 * shape.output_channels;
    operands.relu = relu;
    operands.x = this->x.get();
    operands.weights = weights.get();
    operands.dx = dx.get();
    operands.weight_gradient = weight_gradient.get();
    operands.partial_sums = partial_sums.get();
    run_loops();
  }
  void run_loops() {
    const int out = shape.output_channels, in = shape.input_channels;
    const Values s = state.values(), d = dz.values(), at_y = y.values(), at_x = x.values(),
                 w = weights.values();
    expected_dx.resize(shape.rows * in);
    expected_weights.resize(out * in);
    for (int64_t row = 0; row < shape.rows; ++row) {
      for (int o = 0; o < out; ++o) {
        const double value = at_y[row * out + o];
        // As the device computes it: the sign must agree.
        const bool passes = std::fma(static_cast<float>(value), static_cast<float>(s[3 * out + o]),
                                     static_cast<float>(s[4 * out + o])) > 0;
        const double masked = operands.relu && !passes ? 0 : d[row * out + o];
        const double exact = s[o] * masked + s[out + o] * value + s[2 * out + o];
        const double gradient = as_float(T(static_cast<float>(exact)));
        for (int i = 0; i < in; ++i) {
          expected_dx[row * in + i] += gradient * w[o * in + i];
          expected_weights[o * in + i] += gradient * at_x[row * in + i];
        }
      }
    }
  }
};

TYPED_TEST(HopperKernels, PointwiseBackwardEqualsLoops) {
  struct Channels {
    int out, in;
  };
  for (const auto [out, in] : {Channels{256, 64}, Channels{64, 256}, Channels{64, 64},
                               Channels{128, 256}, Channels{128, 512}}) {
    for (const int rows : {1, 64, 133, 64 * (out == 128 ? 20 : 140) + 1}) {
      const PointwiseShape shape{rows, out, in};
      const int multiprocessors = out == 128 ? 7 : this->multiprocessors_;
      ASSERT_TRUE(pointwise_backward_fits(this->precision, shape, 9));
      const bool relu = out <= in && rows != 133;
      const PointwiseBackward<TypeParam> pass(shape, relu, random_values(rows * in, 3),
                                              multiprocessors);
      launch_pointwise_backward(this->precision, pass.operands, shape, multiprocessors, nullptr);
      EXPECT_LT(relative_error(pass.dx.values(), pass.expected_dx), this->tolerance)
          << out << " " << rows;
      EXPECT_LT(relative_error(pass.weight_gradient.values(), pass.expected_weights),
                this->tolerance)
          << out << " " << rows;
    }
  }
}

// Where a pixel of images of this size lies among those of even rows and columns alone; -1: it is
// none of them.
int64_t even_pixel(int64_t pixel, const ImageSize& image) {
  const int64_t line = pixel / image.width, column = pixel % image.width;
  const int64_t n = line / image.height, row = line % image.height;
  if (row % 2 != 0 || column % 2 != 0) return -1;
  return (n * ((image.height + 1) / 2) + row / 2) * ((image.width + 1) / 2) + column / 2;
}

struct JoinedCase {
  int out, in, rows;
  ImageSize image;  // not 0: the other gradient is at even pixels
};

// The gradient before the ReLU that left x, of which another consumer has a part.
template <class T>
void expect_joined(Precision precision, const JoinedCase& c, double tolerance,
                   int multiprocessors) {
  const auto [out, in, rows, image] = c;
  SCOPED_TRACE(std::to_string(out) + " " + std::to_string(in) + " " + std::to_string(rows));
  const PointwiseShape shape{rows, out, in};
  ASSERT_TRUE(pointwise_backward_joins(shape));
  const bool even = image.height > 0;
  // In the last row a NaN that passes the ReLU and one that does not.
  const int passing = (rows - 1) * in + 5, stopped = (rows - 1) * in + 9;
  Values x = random_values(rows * in, 3), whole = random_values(rows * in, 6), second;
  for (double& value : x) value = std::max(value, 0.0);
  x[passing] = 1;
  x[stopped] = 0;
  whole[passing] = whole[stopped] = std::nan("");
  for (int64_t i = 0; i < rows; ++i) {
    const bool kept = !even || even_pixel(i, image) == static_cast<int64_t>(second.size()) / in;
    for (int64_t at = i * in; at < (i + 1) * in; ++at) {
      if (kept) second.push_back(whole[at]);
      if (!kept) whole[at] = 0;
    }
  }
  PointwiseBackward<T> pass(shape, rows != 133, x, multiprocessors);
  const Buffer<T> dx_second(second);
  const Buffer<float> dx_sums(in);
  pass.operands.dx_second = dx_second.get();
  pass.operands.second_at_even_pixels_of = image;
  pass.operands.dx_sums = dx_sums.get();
  const auto launch = [&] {
    launch_pointwise_backward(precision, pass.operands, shape, multiprocessors, nullptr);
    return dx_sums.values();
  };

  const Values at_x = pass.x.values(), at_second = Buffer<T>(whole).values();
  Values expected = pass.expected_dx, expected_sums(in);
  for (size_t i = 0; i < expected.size(); ++i) {
    expected[i] = at_x[i] > 0 ? expected[i] + at_second[i] : 0;
    expected_sums[i % in] += expected[i];
  }
  Values sums = launch(), dx = pass.dx.values();
  const Values weights = pass.weight_gradient.values();
  if (std::isnan(whole[passing])) {
    EXPECT_TRUE(std::isnan(dx[passing]));
    EXPECT_TRUE(std::isnan(sums[passing % in]));
    sums[passing % in] = expected_sums[passing % in] = 0;
    dx[passing] = expected[passing] = 0;
  }
  EXPECT_EQ(dx[stopped], 0);
  EXPECT_LT(relative_error(dx, expected), tolerance);
  EXPECT_LT(relative_error(sums, expected_sums), tolerance);
  EXPECT_LT(relative_error(weights, pass.expected_weights), tolerance);
  Values again = launch();
  if (std::isnan(whole[passing])) again[passing % in] = 0;
  EXPECT_EQ(again, sums);
  EXPECT_EQ(pass.weight_gradient.values(), weights);

  // A fault in one value of the other gradient shows in dx and in the sums.
  Values faulty = second;
  faulty[7] += 64;
  x = pass.x.values();
  const Buffer<T> wrong(faulty);
  pass.operands.dx_second = wrong.get();
  const Values other = launch();
  const bool passes = x[7] > 0;
  EXPECT_EQ(other[7] != sums[7], passes);
  EXPECT_EQ(relative_error({pass.dx.values()[7]}, {expected[7]}) > tolerance, passes);
}

TYPED_TEST(HopperKernels, PointwiseBackwardJoinsGradients) {
  for (const int rows : {1, 64, 133, 64 * 140 + 1, 64 * 300 + 17}) {
    expect_joined<TypeParam>(this->precision, {64, 256, rows, {}}, this->tolerance,
                             this->multiprocessors_);
  }
  for (const int in : {256, 512}) {
    for (const int rows : {1, 64, 133, 64 * 33 + 17}) {
      // On few multiprocessors a block has many tiles.
      const int multiprocessors = rows > 133 ? 3 : this->multiprocessors_;
      expect_joined<TypeParam>(this->precision, {128, in, rows, {}}, this->tolerance,
                               multiprocessors);
    }
  }
}

TYPED_TEST(HopperKernels, PointwiseBackwardJoinsTheGradientOfEvenPixels) {
  for (const JoinedCase& c :
       {JoinedCase{64, 256, 3 * 7 * 9, {7, 9}}, JoinedCase{128, 256, 5 * 14 * 14, {14, 14}},
        JoinedCase{128, 256, 55 * 57, {55, 57}}, JoinedCase{128, 512, 2 * 9 * 6, {9, 6}}}) {
    expect_joined<TypeParam>(this->precision, c, this->tolerance, 5);
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

// Odd heights, one and several tiles of columns, images smaller than a window. Each shape also runs
// on one multiprocessor, whose block then uses its slots of shared memory again.
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
    const Values image = images.values(), w = weights.values();
    Values expected(results * 64);
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
    for (const int multiprocessors : {this->multiprocessors_, this->multiprocessors_, 1}) {
      NM_CALL(cudaMemset(y.get(), 0xff, results * 64 * sizeof(T)));  // NaN
      // Each launch must leave the scratch in order for the next.
      launch_stem_forward(this->precision, operands, shape,
                          {partial.get(), arrivals.get(), multiprocessors}, nullptr);
      const Values actual = y.values();
      Values expected_sums(128);
      for (size_t i = 0; i < actual.size(); ++i) {
        expected_sums[i % 64] += actual[i];
        expected_sums[64 + i % 64] += actual[i] * actual[i];
      }
      EXPECT_LT(relative_error(actual, expected), this->tolerance) << shape.input_width;
      EXPECT_LT(relative_error(sums.values(), expected_sums), 1e-5) << shape.input_width;
    }
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
    for (const int multiprocessors : {this->multiprocessors_, 1}) {
      launch_stem_backward(this->precision, operands, shape, pool, multiprocessors, nullptr);
      EXPECT_LT(relative_error(weight_gradient.values(), expected), this->tolerance)
          << shape.input_width << " on " << multiprocessors;
    }
  }
}

}  // namespace
}  // namespace nearmetal::cuda
