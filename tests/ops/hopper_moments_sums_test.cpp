// The sums of the batch norm in front of one by second moments, and what is alike in every launch.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/ops/moments_on_device.h"

namespace nearmetal::cuda {
namespace {

template <class T>
using MomentsSums = HopperKernels<T>;
TYPED_TEST_SUITE(MomentsSums, HopperTypes);

// dz = mask * (dz + z M + k) and the sums of a batch norm and ReLU, z their output.
TYPED_TEST(MomentsSums, EqualLoops) {
  using T = TypeParam;
  for (const int channels : {64, 128}) {
    for (const int rows : {1, 133, 700, 20'001}) {
      SCOPED_TRACE(std::to_string(channels) + " channels, " + std::to_string(rows) + " rows");
      const auto scaled = [](Values values, double factor) {
        for (double& value : values) value *= factor;
        return values;
      };
      const Buffer<T> x(random_values(rows * channels, 1)),
          dz(scaled(random_values(rows * channels, 2), 1e-4));
      Values symmetric = random_values(channels * channels, 3);
      for (int i = 0; i < channels; ++i) {
        for (int j = 0; j < channels; ++j) {
          // So small that fp16 holds few of their bits.
          symmetric[i * channels + j] =
              i <= j ? symmetric[i * channels + j] * 1e-6 : symmetric[j * channels + i];
        }
      }
      const Buffer<float> matrix(symmetric), vector(scaled(random_values(channels, 4), 1e-5));
      const NormBuffers norm(channels);
      // With 700 rows and one multiprocessor a block has several tiles.
      const SumsScratch scratch(rows == 700 ? 1 : this->multiprocessors_);
      const float largest = static_cast<float>(
          *std::max_element(symmetric.begin(), symmetric.end(),
                            [](double a, double b) { return std::abs(a) < std::abs(b); }));
      const Buffer<float> largest_bits(Values{std::abs(largest)});
      const Values before = dz.values(), at_x = x.values();
      const auto state_of = [&](const float* field) { return norm.of(field); };
      const Values multiplier = state_of(norm.state.multiplier), shift = state_of(norm.state.shift),
                   mean = state_of(norm.state.mean), k = vector.values();
      launch_moments_sums(this->precision,
                          {x.get(), norm.state, matrix.get(), vector.get(),
                           reinterpret_cast<const unsigned*>(largest_bits.get()), dz.get()},
                          rows, channels, scratch.get(), nullptr);
      Values expected(rows * channels), sum(channels), centred(channels), z(channels);
      for (int row = 0; row < rows; ++row) {
        for (int i = 0; i < channels; ++i) {
          z[i] = this->rounded(std::max(0.0, at_x[row * channels + i] * multiplier[i] + shift[i]));
        }
        for (int i = 0; i < channels; ++i) {
          if (z[i] <= 0) continue;
          double value = before[row * channels + i] + k[i];
          for (int j = 0; j < channels; ++j) value += z[j] * symmetric[j * channels + i];
          expected[row * channels + i] = value;
          sum[i] += value;
          centred[i] += value * (at_x[row * channels + i] - mean[i]);
        }
      }
      for (int i = 0; i < channels; ++i) centred[i] *= state_of(norm.state.inverse_deviation)[i];
      EXPECT_LT(relative_error(dz.values(), expected), 2 * this->tolerance);
      EXPECT_LT(relative_error(state_of(norm.state.bias_gradient), sum), this->tolerance);
      EXPECT_LT(relative_error(state_of(norm.state.scale_gradient), centred), this->tolerance);
    }
  }
}

// So many rows that each block has several tiles.
TYPED_TEST(MomentsSums, AndAllBeforeThemAgreeInEveryBit) {
  for (const int inputs : {64, 128}) {
    SCOPED_TRACE(inputs);
    const MomentsOperands operands(inputs, 60'001);
    const auto results = [&] {
      ByMoments<TypeParam> device(this->precision, this->multiprocessors_, operands, false);
      device.forward();
      device.backward(random_values(4 * inputs, 6), random_values(4 * inputs * inputs, 7),
                      random_values(60'001 * inputs, 8));
      const BatchNormState &norm = device.norm.state, &before = device.norm_before.state;
      return std::vector<Values>{device.z.values(),
                                 device.norm.of(norm.mean),
                                 device.norm.of(norm.inverse_deviation),
                                 device.output.values(),
                                 device.mask.values(),
                                 device.norm.of(norm.scale_gradient),
                                 device.weight_gradient.values(),
                                 device.dx.values(),
                                 device.norm_before.of(before.scale_gradient),
                                 device.norm_before.of(before.bias_gradient)};
    };
    const std::vector<Values> first = results();
    for (int run = 0; run < 3; ++run) {
      const std::vector<Values> again = results();
      for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(again[i] == first[i]) << i;
    }
  }
}

}  // namespace
}  // namespace nearmetal::cuda
