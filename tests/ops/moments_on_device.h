// Batch norm by second moments on the device, and from the convolution's output by loops.
#pragma once

#include <algorithm>
#include <utility>

#include "models/cuda/kernels/batch_norm.h"
#include "models/cuda/kernels/pointwise/second_moments.h"
#include "models/graph.h"
#include "tests/ops/hopper_kernels.h"

namespace nearmetal::cuda {

// The state of a batch norm of so many channels in one buffer, of random values.
class NormBuffers {
 public:
  explicit NormBuffers(int channels)
      : channels_(channels), values_(random_values(arrays * channels, 9)) {
    float* next = values_.get();
    const auto take = [&] { return std::exchange(next, next + channels); };
    state.scale = take();
    state.bias = take();
    for (float** field :
         {&state.running_mean, &state.running_variance, &state.mean, &state.inverse_deviation,
          &state.multiplier, &state.shift, &state.scale_gradient, &state.bias_gradient, &state.a,
          &state.b, &state.c}) {
      *field = take();
    }
  }
  Values of(const float* field) const {
    const Values all = values_.values();
    const auto first = all.begin() + (field - values_.get());
    return Values(first, first + channels_);
  }
  void set(const float* field, const Values& values) const {
    const std::vector<float> host(values.begin(), values.end());
    NM_CALL(cudaMemcpy(values_.get() + (field - values_.get()), host.data(),
                       host.size() * sizeof(float), cudaMemcpyHostToDevice));
  }

  BatchNormState state;

 private:
  static constexpr int arrays = 13;
  int channels_;
  Buffer<float> values_;
};

// A convolution of 1x1 with batch norm, sum and ReLU behind it, and the gradient behind the norm.
// The convolution's input is that of a batch norm with multiplier 1 and shift 0, and its ReLU.
struct MomentsOperands {
  MomentsShape shape;
  Values z, weights, residual, dz;
  Values scale;                      // of the batch norm
  double mean_over_deviation = 3.5;  // of z: what cancels was rounded at this size

  MomentsOperands(int inputs, int rows) : shape{rows, inputs, 4 * inputs} {
    const int outputs = shape.outputs;
    z = random_values(rows * inputs, 1);
    for (double& value : z) value = std::abs(value) + 0.5;
    weights = random_values(outputs * inputs, 2);
    residual = random_values(rows * outputs, 3);
    dz = random_values(rows * outputs, 4);
    scale = random_values(outputs, 5);
  }
};

// The same on the device, by the kernels for second moments.
template <class T>
class ByMoments {
 public:
  ByMoments(Precision precision, int multiprocessors, const MomentsOperands& operands,
            bool normalises_residual)
      : precision_(precision),
        multiprocessors_(multiprocessors),
        shape_(operands.shape),
        normalises_residual_(normalises_residual),
        y_before(operands.z),
        norm_before(shape_.inputs),
        z(shape_.rows * shape_.inputs),
        weights(operands.weights),
        residual(operands.residual),
        dz(operands.dz),
        norm(shape_.outputs),
        residual_norm(shape_.outputs),
        output(elements()),
        mask(elements() / 8),
        scaled_weights(weight_count()),
        weight_gradient(weight_count()),
        dx(shape_.rows * shape_.inputs),
        product_(weight_count()),
        mean_(shape_.inputs),
        central_(shape_.inputs * shape_.inputs),
        matrix_(shape_.inputs * shape_.inputs),
        vector_(shape_.inputs),
        largest_(1),
        moments_{mean_.get(), central_.get()} {
    norm.set(norm.state.scale, operands.scale);
    norm_before.set(norm_before.state.multiplier, Values(shape_.inputs, 1));
    norm_before.set(norm_before.state.shift, Values(shape_.inputs, 0));
  }

  void forward() {
    const Buffer<float> partial(second_moments_scratch_bytes(shape_, multiprocessors_) /
                                sizeof(float));
    launch_second_moments(precision_,
                          {y_before.get(), {norm_before.state}, z.get(), moments_, partial.get()},
                          shape_, multiprocessors_, nullptr);
    launch_moments_statistics(
        precision_, {moments_, weights.get(), norm.state, product_.get(), scaled_weights.get()},
        shape_, nullptr);
    const NormInput other{residual_norm.state};
    PointwiseForwardOperands operands;
    operands.x = z.get();
    operands.weights = weights.get();
    operands.state = norm.state;
    operands.residual = residual.get();
    if (normalises_residual_) operands.residual_norm = &other;
    operands.y = output.get();
    operands.mask = mask.get();
    launch_pointwise_forward(precision_, operands, shape_.rows, shape_.inputs, multiprocessors_,
                             nullptr);
    NM_CALL(cudaDeviceSynchronize());
  }

  // From what the sums of dz and the two products with it leave, which are other kernels' work.
  void backward() {
    const Values at_z = z.values(), at_dz = dz.values(), at_scaled = scaled_weights.values();
    const int inputs = shape_.inputs, outputs = shape_.outputs;
    Values sums(outputs), raw_weights(weight_count()), raw_dx(at_z.size());
    for (int64_t row = 0; row < shape_.rows; ++row) {
      for (int o = 0; o < outputs; ++o) {
        const double value = at_dz[row * outputs + o];
        sums[o] += value;
        for (int i = 0; i < inputs; ++i) {
          raw_weights[o * inputs + i] += value * at_z[row * inputs + i];
          raw_dx[row * inputs + i] += value * at_scaled[o * inputs + i];
        }
      }
    }
    backward(sums, raw_weights, raw_dx);
  }
  void backward(const Values& sums, const Values& raw_weights, const Values& raw_dx) {
    norm.set(norm.state.bias_gradient, sums);
    weight_gradient.set(raw_weights);
    dx.set(raw_dx);
    MomentsGradientOperands operands;
    operands.mean = moments_.mean;
    operands.weights = weights.get();
    operands.state = norm.state;
    operands.product = product_.get();
    operands.weight_gradient = weight_gradient.get();
    operands.matrix = matrix_.get();
    operands.vector = vector_.get();
    operands.largest = reinterpret_cast<unsigned*>(largest_.get());
    launch_moments_gradient(precision_, operands, shape_, nullptr);
    const SumsScratch scratch(multiprocessors_);
    launch_moments_sums(precision_,
                        {y_before.get(), norm_before.state, operands.matrix, operands.vector,
                         operands.largest, dx.get()},
                        shape_.rows, shape_.inputs, scratch.get(), nullptr);
    NM_CALL(cudaDeviceSynchronize());
  }

 private:
  int64_t elements() const { return shape_.rows * shape_.outputs; }
  int64_t weight_count() const { return int64_t{shape_.outputs} * shape_.inputs; }

  Precision precision_;
  int multiprocessors_;
  MomentsShape shape_;
  bool normalises_residual_;

 public:
  Buffer<T> y_before;
  NormBuffers norm_before;
  Buffer<T> z, weights, residual, dz;
  NormBuffers norm, residual_norm;
  Buffer<T> output;
  Buffer<uint8_t> mask;
  Buffer<T> scaled_weights, weight_gradient, dx;

 private:
  Buffer<float> product_, mean_, central_, matrix_, vector_, largest_;
  InputMoments moments_;
};

// Both passes from the convolution's output, in double.
struct NormLoops {
  int64_t rows;
  int inputs, outputs;
  Values z, weights, scale;
  Values mean, inverse_deviation, y;  // y: the convolution's output
  Values scale_gradient, weight_gradient, dx;

  template <class T>
  explicit NormLoops(const ByMoments<T>& device, const MomentsShape& shape)
      : rows(shape.rows),
        inputs(shape.inputs),
        outputs(shape.outputs),
        z(device.z.values()),
        weights(device.weights.values()),
        scale(device.norm.of(device.norm.state.scale)),
        mean(outputs),
        inverse_deviation(outputs),
        y(rows * outputs) {
    convolve();
    take_statistics();
  }

  void convolve() {
    for (int64_t row = 0; row < rows; ++row) {
      for (int o = 0; o < outputs; ++o) {
        double sum = 0;
        for (int i = 0; i < inputs; ++i) sum += z[row * inputs + i] * weights[o * inputs + i];
        y[row * outputs + o] = sum;
      }
    }
  }
  void take_statistics() {
    const auto n = static_cast<double>(rows);
    for (int o = 0; o < outputs; ++o) {
      double sum = 0, squares = 0;
      for (int64_t row = 0; row < rows; ++row) sum += y[row * outputs + o];
      mean[o] = sum / n;
      for (int64_t row = 0; row < rows; ++row) {
        squares += (y[row * outputs + o] - mean[o]) * (y[row * outputs + o] - mean[o]);
      }
      inverse_deviation[o] = 1 / std::sqrt(squares / n + batch_norm_epsilon);
    }
  }
  double normalised(int64_t row, int o) const {
    return (y[row * outputs + o] - mean[o]) * inverse_deviation[o];
  }

  void backward(const Values& dz) {
    const auto n = static_cast<double>(rows);
    scale_gradient.assign(outputs, 0);
    weight_gradient.assign(weights.size(), 0);
    dx.assign(z.size(), 0);
    for (int o = 0; o < outputs; ++o) {
      double sum = 0;
      for (int64_t row = 0; row < rows; ++row) {
        sum += dz[row * outputs + o];
        scale_gradient[o] += dz[row * outputs + o] * normalised(row, o);
      }
      for (int64_t row = 0; row < rows; ++row) {
        const double dy =
            scale[o] * inverse_deviation[o] *
            (dz[row * outputs + o] - sum / n - normalised(row, o) * scale_gradient[o] / n);
        for (int i = 0; i < inputs; ++i) {
          weight_gradient[o * inputs + i] += dy * z[row * inputs + i];
          dx[row * inputs + i] += dy * weights[o * inputs + i];
        }
      }
    }
    for (size_t at = 0; at < z.size(); ++at) {
      if (z[at] <= 0) dx[at] = 0;  // masked by the ReLU before
    }
  }
};

}  // namespace nearmetal::cuda
