#include "models/cuda/device/call.h"
#include "models/cuda/kernels/pack.h"
#include "models/cuda/kernels/update.h"
#include "models/training_options.h"

namespace nearmetal::cuda {
namespace {

constexpr int update_threads = 256;

__device__ double block_sum(double value) {
  __shared__ double shared[update_threads / 32];
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffff, value, distance);
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = 0;
  for (double part : shared) value += part;
  return value;
}

template <class T>
__device__ double square_sum(const T* values, int64_t elements) {
  double total = 0;
  const int64_t packs = elements / pack_width<T>;
  for (int64_t pack = int64_t{blockIdx.x} * update_threads + threadIdx.x; pack < packs;
       pack += int64_t{gridDim.x} * update_threads) {
    const Pack<T> loaded = load_pack(values + pack * pack_width<T>);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < pack_width<T>; ++i) {
      const float value = to_float(loaded.values[i]);
      sum = fmaf(value, value, sum);
    }
    total += sum;
  }
  return total;
}

// Nanoseconds; the same clock on all multiprocessors.
__device__ uint64_t device_clock() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__global__ void mark_backward_end_kernel(StepState* state) {
  state->backward_end_nanoseconds = device_clock();
}

// One thread, after all gradients have been summed.
__device__ void finish(const FinishOperands& operands, double loss, double scaled_square_sum) {
  StepState& state = *operands.state;
  DeviceRecord& record = operands.ring[state.step % operands.ring_size];
  const float scale = state.loss_scale;
  const bool finite = isfinite(scaled_square_sum);
  record.loss = static_cast<float>(loss);
  record.gradient_norm = static_cast<float>(sqrt(scaled_square_sum) / scale / operands.ranks);
  record.update_skipped = finite ? 0 : 1;
  state.skip_update = finite ? 0 : 1;
  if (finite) state.updates += 1;
  const bool adamw = operands.parameters.second_moments != nullptr;
  if (adamw && finite) state.adamw = adamw_step(state.learning_rate, state.updates);
  record.exposed_communication_seconds =
      1e-9f * static_cast<float>(state.exchange_end_nanoseconds - state.backward_end_nanoseconds);
  state.inverse_scale = 1 / (scale * static_cast<float>(operands.ranks));
  state.step += 1;
  if (operands.dynamic_loss_scale) adapt_loss_scale(state.loss_scale, state.good_steps, finite);
}

template <class T>
__global__ void finish_step_kernel(FinishOperands operands) {
  const FlatParameters& parameters = operands.parameters;
  StepState& state = *operands.state;
  if (blockIdx.x == 0 && threadIdx.x == 0 && state.backward_end_nanoseconds != 0) {
    state.exchange_end_nanoseconds = device_clock();
  }
  double sum = 0;
  if (!operands.forward_only) {
    sum =
        square_sum(static_cast<const T*>(parameters.matrix_gradients), parameters.matrix_elements) +
        square_sum(parameters.vector_gradients, parameters.vector_elements);
  }
  sum = block_sum(sum);
  __shared__ bool last;
  if (threadIdx.x == 0) {
    operands.partial_sums[blockIdx.x] = sum;
    __threadfence();
    last = atomicInc(operands.arrivals, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  double total = 0, loss = 0;
  for (unsigned i = threadIdx.x; i < gridDim.x; i += update_threads) {
    total += __ldcg(operands.partial_sums + i);
  }
  for (int64_t i = threadIdx.x; i < operands.images; i += update_threads) {
    loss += operands.losses[i];
  }
  total = block_sum(total);
  loss = block_sum(loss) / static_cast<double>(operands.images);
  if (threadIdx.x > 0) return;
  if (operands.stage_sums == nullptr) return finish(operands, loss, total);
  operands.stage_sums[0] = total;
  operands.stage_sums[1] = loss;
}

__global__ void finish_stages_kernel(FinishOperands operands) {
  finish(operands, operands.stage_sums[1], operands.stage_sums[0]);
}

__global__ void mark_kernel(MarkRing ring, int mark) {
  ring.marks[ring.state->step % ring.ring_size * ring.count + mark] = device_clock();
}

template <class T>
__global__ void copy_values_kernel(const float* values, T* copies, int64_t elements) {
  const int64_t i = int64_t{blockIdx.x} * update_threads + threadIdx.x;
  if (i < elements) copies[i] = from_float<T>(values[i]);
}

template <class T>
__global__ void mask_gradient_kernel(T* gradients, const uint8_t* mask, int64_t elements) {
  const int64_t i = int64_t{blockIdx.x} * update_threads + threadIdx.x;
  if (i < elements && mask[i] == 0) gradients[i] = from_float<T>(0);
}

constexpr int at_once = 4;  // elements of a thread: 16 bytes of fp32

template <class T>
struct alignas(at_once * sizeof(T)) AtOnce {
  T values[at_once];
};

template <class From, class To>
__global__ void convert_kernel(const From* in, To* out, int64_t elements) {
  const int64_t i = int64_t{blockIdx.x} * update_threads + threadIdx.x;
  if (i >= elements / at_once) return;
  const auto loaded = reinterpret_cast<const AtOnce<From>*>(in)[i];
  AtOnce<To> converted;
#pragma unroll
  for (int j = 0; j < at_once; ++j) {
    converted.values[j] = from_float<To>(to_float(loaded.values[j]));
  }
  reinterpret_cast<AtOnce<To>*>(out)[i] = converted;
}

template <class T, MicroBatch which>
__global__ void add_micro_batch_kernel(T* gradient, float* sum_before, int64_t elements,
                                       float factor) {
  const int64_t i = int64_t{blockIdx.x} * update_threads + threadIdx.x;
  if (i >= elements / at_once) return;
  auto& gradients = reinterpret_cast<AtOnce<T>*>(gradient)[i];
  auto& sums = reinterpret_cast<AtOnce<float>*>(sum_before)[i];
  const AtOnce<T> loaded = gradients;
  AtOnce<float> sum{};
  if constexpr (which != MicroBatch::first) sum = sums;
#pragma unroll
  for (int j = 0; j < at_once; ++j) sum.values[j] += to_float(loaded.values[j]);
  if constexpr (which == MicroBatch::last) {
    AtOnce<T> mean;
#pragma unroll
    for (int j = 0; j < at_once; ++j) mean.values[j] = from_float<T>(sum.values[j] * factor);
    gradients = mean;
  } else {
    sums = sum;
  }
}

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
    auto value = reinterpret_cast<AtOnce<float>*>(values)[i];
    auto velocity = reinterpret_cast<AtOnce<float>*>(momentum)[i];
    const auto gradient = reinterpret_cast<const AtOnce<G>*>(gradients)[i];
    AtOnce<T> copy;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float g =
          fmaf(weight_decay, value.values[j], to_float(gradient.values[j]) * inverse_scale);
      velocity.values[j] = fmaf(momentum_factor, velocity.values[j], g);
      value.values[j] = fmaf(-learning_rate, velocity.values[j], value.values[j]);
      copy.values[j] = from_float<T>(value.values[j]);
    }
    reinterpret_cast<AtOnce<float>*>(values)[i] = value;
    reinterpret_cast<AtOnce<float>*>(momentum)[i] = velocity;
    if (copies != nullptr) reinterpret_cast<AtOnce<T>*>(copies)[i] = copy;
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
    auto value = reinterpret_cast<AtOnce<float>*>(values)[i];
    auto first = reinterpret_cast<AtOnce<float>*>(first_moments)[i];
    auto second = reinterpret_cast<AtOnce<float>*>(second_moments)[i];
    const auto gradient = reinterpret_cast<const AtOnce<G>*>(gradients)[i];
    AtOnce<T> copy;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      adamw_update(step, keep, to_float(gradient.values[j]) * inverse_scale, first.values[j],
                   second.values[j], value.values[j]);
      copy.values[j] = from_float<T>(value.values[j]);
    }
    reinterpret_cast<AtOnce<float>*>(values)[i] = value;
    reinterpret_cast<AtOnce<float>*>(first_moments)[i] = first;
    reinterpret_cast<AtOnce<float>*>(second_moments)[i] = second;
    if (copies != nullptr) reinterpret_cast<AtOnce<T>*>(copies)[i] = copy;
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
  const auto behind = [&](auto* first) { return first == nullptr ? first : first + matrices; };
  with_element_type(precision, [&]<class T>() {
    T* const copies = static_cast<T*>(parameters.copies);
    launch(Section<T, T>{true, matrices, parameters.values, parameters.momentum,
                         parameters.second_moments,
                         static_cast<const T*>(parameters.matrix_gradients), copies});
    launch(Section<T, float>{false, parameters.vector_elements, behind(parameters.values),
                             behind(parameters.momentum), behind(parameters.second_moments),
                             parameters.vector_gradients, behind(copies)});
  });
}

}  // namespace

void launch_finish_step(Precision precision, const FinishOperands& operands, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const unsigned blocks = operands.forward_only ? 1 : finish_blocks;
    enqueue({blocks, update_threads, stream}, finish_step_kernel<T>, operands);
  });
}

void launch_add_micro_batch(MicroBatch which, const MicroBatchGradient& operands, int64_t count,
                            cudaStream_t stream) {
  const auto factor = 1 / static_cast<float>(count);
  with_element_type(operands.type, [&]<class T>() {
    const auto kernel = which == MicroBatch::first ? add_micro_batch_kernel<T, MicroBatch::first>
                        : which == MicroBatch::middle
                            ? add_micro_batch_kernel<T, MicroBatch::middle>
                            : add_micro_batch_kernel<T, MicroBatch::last>;
    enqueue(each_piece(operands.elements / at_once, stream), kernel, operands.gradient,
            operands.sum_before, operands.elements, factor);
  });
}

void launch_finish_stages(const FinishOperands& operands, cudaStream_t stream) {
  enqueue({1, 1, stream}, finish_stages_kernel, operands);
}

void launch_mark(const MarkRing& ring, int mark, cudaStream_t stream) {
  enqueue({1, 1, stream}, mark_kernel, ring, mark);
}

void launch_mark_backward_end(StepState* state, cudaStream_t stream) {
  enqueue({1, 1, stream}, mark_backward_end_kernel, state);
}

void launch_copy_values(Precision precision, const FlatParameters& parameters,
                        cudaStream_t stream) {
  if (parameters.copies == nullptr) return;
  with_element_type(precision, [&]<class T>() {
    const int64_t elements = parameters.matrix_elements + parameters.vector_elements;
    enqueue(each_piece(elements, stream), copy_values_kernel<T>, parameters.values,
            parameters.copies, elements);
  });
}

void launch_mask_gradient(Precision precision, void* gradients, const uint8_t* mask,
                          int64_t elements, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    enqueue(each_piece(elements, stream), mask_gradient_kernel<T>, gradients, mask, elements);
  });
}

void launch_convert(Precision from, const void* in, Precision to, void* out, int64_t elements,
                    cudaStream_t stream) {
  with_element_type(from, [&]<class From>() {
    with_element_type(to, [&]<class To>() {
      if constexpr (std::is_same_v<From, To>) {
        no_kernel("a conversion from a type to itself");
      } else {
        enqueue(each_piece(elements / at_once, stream), convert_kernel<From, To>, in, out,
                elements);
      }
    });
  });
}

void launch_sgd(Precision precision, const FlatParameters& parameters, double momentum,
                double weight_decay, const StepState* state, cudaStream_t stream) {
  for_each_section(precision, parameters, [&]<class T, class G>(const Section<T, G>& part) {
    enqueue(each_piece(part.elements / at_once, stream), sgd_kernel<T, G>, part.values,
            part.momentum, part.gradients, part.copies, part.elements, static_cast<float>(momentum),
            static_cast<float>(weight_decay), state);
  });
}

void launch_adamw(Precision precision, const FlatParameters& parameters, double weight_decay,
                  const StepState* state, cudaStream_t stream) {
  for_each_section(precision, parameters, [&]<class T, class G>(const Section<T, G>& part) {
    enqueue(each_piece(part.elements / at_once, stream), adamw_kernel<T, G>, part.values,
            part.momentum, part.second_moments, part.gradients, part.copies, part.elements,
            part.is_matrices ? static_cast<float>(weight_decay) : 0.0f, state);
  });
}

}  // namespace nearmetal::cuda
