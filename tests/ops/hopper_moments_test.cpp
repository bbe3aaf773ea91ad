// The kernels of batch norm by second moments against loops over the convolution's output.
#include <gmock/gmock.h>

#include <string>
#include <utility>

#include "tests/ops/moments_on_device.h"

namespace nearmetal::cuda {
namespace {

using ::testing::Each;

template <class T>
class Moments : public HopperKernels<T> {
 protected:
  using Base = HopperKernels<T>;
  static constexpr double tolerance = Base::tolerance;

  // `dual`: the residual is the output of another batch norm.
  ByMoments<T> on_device(const MomentsOperands& operands, bool dual = false) {
    EXPECT_TRUE(moments_fit(Base::precision, operands.shape, 9));
    return {Base::precision, this->multiprocessors_, operands, dual};
  }

  void expect_forward(const ByMoments<T>& device, const NormLoops& loops,
                      const MomentsOperands& operands, bool dual) {
    const BatchNormState& state = device.norm.state;
    // The variance of two rows is a difference of values that are nearly alike.
    const bool ill = loops.rows == 2;
    const double squared = operands.mean_over_deviation * operands.mean_over_deviation;
    // Tensor cores round sums towards zero, once for at least 32 rows of a multiprocessor.
    const double rounding = static_cast<double>(loops.rows) / this->multiprocessors_ / 32 * 0x1p-23;
    EXPECT_LT(relative_error(device.norm.of(state.mean), loops.mean), 1e-5);
    EXPECT_LT(relative_error(device.norm.of(state.inverse_deviation), loops.inverse_deviation),
              ill ? 0.05 : (1e-6 + rounding) * squared);
    const Values beta = device.norm.of(state.bias), residual = device.residual.values();
    const NormBuffers& other = device.residual_norm;
    const Values factors = other.of(other.state.multiplier), shifts = other.of(other.state.shift);
    const Values bits = device.mask.values();
    Values expected(loops.y.size());
    int wrong_bits = 0;
    for (int64_t row = 0; row < loops.rows; ++row) {
      for (int o = 0; o < loops.outputs; ++o) {
        const int64_t at = row * loops.outputs + o;
        const double summand = dual ? residual[at] * factors[o] + shifts[o] : residual[at];
        const double value = loops.scale[o] * loops.normalised(row, o) + beta[o] + summand;
        expected[at] = std::max(0.0, value);
        const bool bit = (static_cast<int>(bits[at / 8]) >> at % 8 & 1) != 0;
        wrong_bits += bit != (value > 0) && std::abs(value) > 1e-2 && !ill ? 1 : 0;
      }
    }
    EXPECT_LT(relative_error(device.output.values(), expected), (ill ? 20 : 2) * tolerance);
    EXPECT_EQ(wrong_bits, 0);
  }

  void expect_backward(const ByMoments<T>& device, NormLoops& loops,
                       const MomentsOperands& operands) {
    loops.backward(device.dz.values());
    const double of_gradients = 6 * operands.mean_over_deviation * tolerance;
    EXPECT_LT(
        relative_error(device.norm.of(device.norm.state.scale_gradient), loops.scale_gradient),
        of_gradients);
    EXPECT_LT(relative_error(device.weight_gradient.values(), loops.weight_gradient), of_gradients);
    EXPECT_LT(relative_error(device.dx.values(), loops.dx),
              std::max(4 * tolerance, operands.mean_over_deviation * tolerance));
  }

  void expect_loops(const MomentsOperands& operands, bool dual = false) {
    ByMoments<T> device = on_device(operands, dual);
    device.forward();
    NormLoops loops(device, operands.shape);
    expect_forward(device, loops, operands, dual);
    if (operands.shape.rows == 2) return;  // ill-conditioned
    device.backward();
    expect_backward(device, loops, operands);
  }
};
TYPED_TEST_SUITE(Moments, HopperTypes);

constexpr int moments_inputs[] = {64, 128};

TYPED_TEST(Moments, BatchNormEqualsLoops) {
  for (const int inputs : moments_inputs) {
    for (const int rows : {2, 133, 700}) {
      SCOPED_TRACE(std::to_string(inputs) + " inputs, " + std::to_string(rows) + " rows");
      this->expect_loops({inputs, rows}, rows == 133);
    }
    // So many tiles for a block that its places in shared memory are used again and again.
    const int multiprocessors = std::exchange(this->multiprocessors_, 1);
    for (const bool dual : {false, true}) this->expect_loops({inputs, 1500}, dual);
    this->multiprocessors_ = multiprocessors;
  }
}

// Its batch norm's coefficients are there, or follow from sums and are left behind.
TYPED_TEST(Moments, TheInputIsARoundedReluOfABatchNorm) {
  using T = TypeParam;
  for (const int inputs : moments_inputs) {
    for (const bool by_sums : {false, true}) {
      SCOPED_TRACE(std::to_string(inputs) + (by_sums ? " inputs, by sums" : " inputs"));
      const MomentsShape shape{133, inputs, 4 * inputs};
      const Buffer<T> y(random_values(shape.rows * inputs, 1)), z(shape.rows * inputs);
      const NormBuffers norm(inputs);
      const Buffer<float> sum(random_values(inputs, 5)), square_sum(Values(inputs, 100)),
          mean(inputs), central(inputs * inputs),
          partial(second_moments_scratch_bytes(shape, this->multiprocessors_) / sizeof(float));
      NormInput input{norm.state};
      if (by_sums) {
        input.sum = sum.get();
        input.square_sum = square_sum.get();
      }
      launch_second_moments(this->precision,
                            {y.get(), input, z.get(), {mean.get(), central.get()}, partial.get()},
                            shape, this->multiprocessors_, nullptr);
      const Values at_y = y.values(), factors = norm.of(norm.state.multiplier),
                   shifts = norm.of(norm.state.shift);
      Values expected(at_y.size());
      for (size_t at = 0; at < at_y.size(); ++at) {
        const double value = at_y[at] * factors[at % inputs] + shifts[at % inputs];
        expected[at] = this->rounded(std::max(0.0, value));
      }
      EXPECT_EQ(z.values(), expected);
      if (!by_sums) continue;
      Values means = sum.values();
      for (double& value : means) value /= static_cast<double>(shape.rows);
      EXPECT_LT(relative_error(norm.of(norm.state.mean), means), 1e-6);
    }
  }
}

TYPED_TEST(Moments, OfChannelsThatAreAlwaysZeroAreZero) {
  for (const int inputs : moments_inputs) {
    SCOPED_TRACE(inputs);
    MomentsOperands operands(inputs, 133);
    const int dead_input = 3, dead_output = 5;
    for (int row = 0; row < 133; ++row) operands.z[row * inputs + dead_input] = 0;
    for (int i = 0; i < inputs; ++i) operands.weights[dead_output * inputs + i] = 0;
    this->expect_loops(operands);
    auto device = this->on_device(operands);
    device.forward();
    device.backward();
    const Values gradient = device.weight_gradient.values();
    for (int o = 0; o < operands.shape.outputs; ++o) {
      EXPECT_EQ(gradient[o * inputs + dead_input], 0) << o;
    }
    const BatchNormState& state = device.norm.state;
    EXPECT_EQ(device.norm.of(state.mean)[dead_output], 0);
    EXPECT_NEAR(device.norm.of(state.inverse_deviation)[dead_output],
                1 / std::sqrt(batch_norm_epsilon), 1e-2);
  }
}

// As the last batch norms of residual branches start.
TYPED_TEST(Moments, ScaleZeroHasAGradientAndPassesNone) {
  for (const int inputs : moments_inputs) {
    SCOPED_TRACE(inputs);
    MomentsOperands operands(inputs, 133);
    for (int o = 0; o < operands.shape.outputs; o += 2) operands.scale[o] = 0;
    this->expect_loops(operands);
    operands.scale.assign(operands.shape.outputs, 0);
    auto device = this->on_device(operands);
    device.forward();
    device.backward();
    EXPECT_THAT(device.weight_gradient.values(), Each(0));
    EXPECT_THAT(device.dx.values(), Each(0));
    NormLoops loops(device, operands.shape);
    loops.backward(device.dz.values());
    const BatchNormState& state = device.norm.state;
    EXPECT_LT(relative_error(device.norm.of(state.scale_gradient), loops.scale_gradient),
              6 * operands.mean_over_deviation * this->tolerance);
  }
}

// The second moments about 0 would then be 900 times those about the mean.
TYPED_TEST(Moments, MeansFarLargerThanDeviationsCancel) {
  for (const int inputs : moments_inputs) {
    SCOPED_TRACE(inputs);
    MomentsOperands operands(inputs, 700);
    operands.mean_over_deviation = 30;
    const double deviation = 1 / std::sqrt(3.0);  // of values between -1 and 1
    operands.z = random_values(operands.z.size(), 1);
    for (double& value : operands.z) value += operands.mean_over_deviation * deviation;
    this->expect_loops(operands);
  }
}

// Whether each value of a matrix is NaN or not as `expected` tells of its row and column.
template <class Expected>
::testing::AssertionResult are_nan_where(const Values& values, int columns, Expected expected) {
  for (size_t at = 0; at < values.size(); ++at) {
    const auto row = static_cast<int64_t>(at) / columns;
    const int column = static_cast<int>(at % columns);
    if (std::isnan(values[at]) != expected(row, column)) {
      return ::testing::AssertionFailure()
             << values[at] << " in row " << row << ", column " << column;
    }
  }
  return ::testing::AssertionSuccess();
}

constexpr int bad_row = 77, bad_input = 9, bad_output = 21;
const auto everywhere = [](int64_t, int) { return true; };

TYPED_TEST(Moments, NanInTheInputReachesEverything) {
  for (const int inputs : moments_inputs) {
    SCOPED_TRACE(inputs);
    MomentsOperands operands(inputs, 133);
    operands.z[bad_row * inputs + bad_input] = std::nan("");
    auto device = this->on_device(operands);
    device.forward();
    device.backward();
    EXPECT_TRUE(are_nan_where(device.output.values(), operands.shape.outputs, everywhere));
    EXPECT_TRUE(are_nan_where(device.weight_gradient.values(), inputs, everywhere));
    // A NaN does not pass the ReLU on its way back.
    EXPECT_TRUE(are_nan_where(device.dx.values(), inputs, [](int64_t row, int input) {
      return row != bad_row || input != bad_input;
    }));
  }
}

// A weight that is NaN spoils its output alone, and what all outputs add up to.
TYPED_TEST(Moments, NanInAWeightReachesItsOutput) {
  for (const int inputs : moments_inputs) {
    SCOPED_TRACE(inputs);
    MomentsOperands operands(inputs, 133);
    operands.weights[bad_output * inputs + bad_input] = std::nan("");
    auto device = this->on_device(operands);
    device.forward();
    device.backward();
    EXPECT_TRUE(are_nan_where(device.output.values(), operands.shape.outputs,
                              [](int64_t, int output) { return output == bad_output; }));
    EXPECT_TRUE(are_nan_where(device.weight_gradient.values(), inputs,
                              [](int64_t output, int) { return output == bad_output; }));
    EXPECT_TRUE(are_nan_where(device.dx.values(), inputs, everywhere));
  }
}

TYPED_TEST(Moments, NanInTheResidualReachesItsPlace) {
  for (const bool dual : {false, true}) {
    MomentsOperands operands(64, 133);
    operands.residual[bad_row * operands.shape.outputs + bad_output] = std::nan("");
    auto device = this->on_device(operands, dual);
    device.forward();
    EXPECT_TRUE(are_nan_where(
        device.output.values(), operands.shape.outputs,
        [](int64_t row, int output) { return row == bad_row && output == bad_output; }));
  }
}

// By the mean over the rows it is in the gradient of each.
TYPED_TEST(Moments, NanInTheGradientReachesEveryRow) {
  for (const int inputs : moments_inputs) {
    SCOPED_TRACE(inputs);
    MomentsOperands operands(inputs, 133);
    operands.dz[bad_row * operands.shape.outputs + bad_output] = std::nan("");
    auto device = this->on_device(operands);
    device.forward();
    device.backward();
    const BatchNormState& state = device.norm.state;
    EXPECT_TRUE(are_nan_where(device.norm.of(state.scale_gradient), operands.shape.outputs,
                              [](int64_t, int output) { return output == bad_output; }));
    EXPECT_TRUE(are_nan_where(device.weight_gradient.values(), inputs,
                              [](int64_t output, int) { return output == bad_output; }));
    EXPECT_TRUE(are_nan_where(device.dx.values(), inputs, everywhere));
  }
}

}  // namespace
}  // namespace nearmetal::cuda
