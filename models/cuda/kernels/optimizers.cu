// The updates that end a step: one sweep over the flat buffers of all parameters.
#include "models/cuda/device/call.h"
#include "models/cuda/kernels/pack.h"
#include "models/cuda/kernels/update.h"
#include "models/training_options.h"

namespace nearmetal::cuda {
namespace {

constexpr int update_threads = 256;

// Four elements a thread: 16 bytes of each fp32 array.
template <class G>
struct alignas(4 * sizeof(G)) Four {
  G values[4];
};

template <class T, class G>
__global__ void sgd_kernel(float* values, float* momentum, const G* gradients, T* copies,
                           int64_t elements, float momentum_factor, float weight_decay,
                           const StepState* state) {
  if (state->skip_update != 0) return;
  const float learning_rate = state->learning_rate;
  const float inverse_scale = state->inverse_scale;
  const int64_t stride = int64_t{gridDim.x} * update_threads;
  for (int64_t i = int64_t{blockIdx.x} * update_threads + threadIdx.x; i < elements / 4;
       i += stride) {
    auto value = reinterpret_cast<Four<float>*>(values)[i];
    auto velocity = reinterpret_cast<Four<float>*>(momentum)[i];
    const auto gradient = reinterpret_cast<const Four<G>*>(gradients)[i];
    Four<T> copy;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float g =
          fmaf(weight_decay, value.values[j], to_float(gradient.values[j]) * inverse_scale);
      velocity.values[j] = fmaf(momentum_factor, velocity.values[j], g);
      value.values[j] = fmaf(-learning_rate, velocity.values[j], value.values[j]);
      copy.values[j] = from_float<T>(value.values[j]);
    }
    reinterpret_cast<Four<float>*>(values)[i] = value;
    reinterpret_cast<Four<float>*>(momentum)[i] = velocity;
    if (copies != nullptr) reinterpret_cast<Four<T>*>(copies)[i] = copy;
  }
}

template <class T, class G>
__global__ void adamw_kernel(float* values, float* first_moments, float* second_moments,
                             const G* gradients, T* copies, int64_t elements, float weight_decay,
                             const StepState* state) {
  if (state->skip_update != 0) return;
  const AdamwStep step = state->adamw;
  const float keep = 1 - state->learning_rate * weight_decay;
  const float inverse_scale = state->inverse_scale;
  const int64_t stride = int64_t{gridDim.x} * update_threads;
  for (int64_t i = int64_t{blockIdx.x} * update_threads + threadIdx.x; i < elements / 4;
       i += stride) {
    auto value = reinterpret_cast<Four<float>*>(values)[i];
    auto first = reinterpret_cast<Four<float>*>(first_moments)[i];
    auto second = reinterpret_cast<Four<float>*>(second_moments)[i];
    const auto gradient = reinterpret_cast<const Four<G>*>(gradients)[i];
    Four<T> copy;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      adamw_update(step, keep, to_float(gradient.values[j]) * inverse_scale, first.values[j],
                   second.values[j], value.values[j]);
      copy.values[j] = from_float<T>(value.values[j]);
    }
    reinterpret_cast<Four<float>*>(values)[i] = value;
    reinterpret_cast<Four<float>*>(first_moments)[i] = first;
    reinterpret_cast<Four<float>*>(second_moments)[i] = second;
    if (copies != nullptr) reinterpret_cast<Four<T>*>(copies)[i] = copy;
  }
}

// The matrices, or the vectors, of FlatParameters, as the update reads and writes them.
template <class T, class G>
struct Section {
  bool is_matrices;
  int64_t elements;
  float* values;
  float* momentum;
  float* second_moments;
  const G* gradients;
  T* copies;
};

template <class Launch>
void for_each_section(Precision precision, const FlatParameters& parameters, Launch launch) {
  const int64_t matrices = parameters.matrix_elements;
  const auto behind = [&](float* first) { return first == nullptr ? first : first + matrices; };
  with_element_type(precision, [&]<class T>() {
    launch(Section<T, T>{
        true, matrices, parameters.values, parameters.momentum, parameters.second_moments,
        static_cast<const T*>(parameters.matrix_gradients), static_cast<T*>(parameters.copies)});
    NM_CHECK_LAUNCH();
    T* const copies = static_cast<T*>(parameters.copies);
    launch(Section<T, float>{false, parameters.vector_elements, behind(parameters.values),
                             behind(parameters.momentum), behind(parameters.second_moments),
                             parameters.vector_gradients,
                             copies == nullptr ? copies : copies + matrices});
    NM_CHECK_LAUNCH();
  });
}

}  // namespace

void launch_sgd(Precision precision, const FlatParameters& parameters, double momentum,
                double weight_decay, const StepState* state, cudaStream_t stream) {
  for_each_section(precision, parameters, [&](const auto& part) {
    sgd_kernel<<<blocks_for(part.elements / 4, update_threads), update_threads, 0, stream>>>(
        part.values, part.momentum, part.gradients, part.copies, part.elements,
        static_cast<float>(momentum), static_cast<float>(weight_decay), state);
  });
}

void launch_adamw(Precision precision, const FlatParameters& parameters, double weight_decay,
                  const StepState* state, cudaStream_t stream) {
  for_each_section(precision, parameters, [&](const auto& part) {
    adamw_kernel<<<blocks_for(part.elements / 4, update_threads), update_threads, 0, stream>>>(
        part.values, part.momentum, part.second_moments, part.gradients, part.copies, part.elements,
        part.is_matrices ? static_cast<float>(weight_decay) : 0.0f, state);
  });
}

}  // namespace nearmetal::cuda
