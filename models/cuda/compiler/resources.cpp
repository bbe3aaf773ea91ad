#include "models/cuda/compiler/resources.h"

#include <stdexcept>

#include "models/memory_plan.h"

namespace nearmetal::cuda {
namespace {

constexpr int64_t buffer_alignment = 256;
constexpr int arrays_per_norm = 7;  // mean, inverse_deviation, multiplier, shift, a, b, c

// Hands out buffers of one allocation; with a null base it only counts their bytes.
class Carver {
 public:
  explicit Carver(void* base) : base_(static_cast<char*>(base)) {}

  template <class T>
  T* take(int64_t count) {
    char* address = base_ == nullptr ? nullptr : base_ + bytes_;
    bytes_ += round_up(count * static_cast<int64_t>(sizeof(T)), buffer_alignment);
    return reinterpret_cast<T*>(address);
  }
  int64_t bytes() const { return bytes_; }

 private:
  char* base_;
  int64_t bytes_ = 0;
};

void carve_parameters(Carver& carver, const FlatLayout& layout, const ProgramOptions& options,
                      FlatParameters& flat) {
  const int64_t element_size = element_bytes(options.precision);
  flat.matrix_elements = layout.matrix_elements;
  flat.vector_elements = layout.vector_elements;
  flat.values = carver.take<float>(layout.elements());
  const bool copies = element_size < static_cast<int64_t>(sizeof(float));
  flat.copies = copies ? carver.take<char>(layout.elements() * element_size) : nullptr;
  if (options.forward_only) return;
  flat.momentum = carver.take<float>(layout.elements());
  if (is_adamw(options)) flat.second_moments = carver.take<float>(layout.elements());
  flat.matrix_gradients = carver.take<char>(layout.matrix_elements * element_size);
  flat.vector_gradients = carver.take<float>(layout.vector_elements);
  if (options.micro_batches > 1) flat.sum_before = carver.take<float>(layout.elements());
}

void carve_sent(Carver& carver, const FlatLayout& layout, const ProgramOptions& options,
                StepResources& resources) {
  if (!options.gradient_type || options.forward_only) return;
  const Precision type = *options.gradient_type;
  const int64_t size = element_bytes(type);
  if (type != stored_type(options.precision)) {
    resources.sent_matrices = carver.take<char>(layout.matrix_elements * size);
  }
  if (type == Precision::fp32) return;
  resources.sent_vectors = carver.take<char>(layout.vector_elements * size);
}

// `next_array`: of the slot; running statistics are of all.
void place_norms(const Graph& graph, const FlatLayout& layout, const StepResources& resources,
                 float* next_array, std::span<BatchNormState> norms) {
  float* next_statistic = resources.running_statistics;
  const FlatParameters& flat = resources.parameters;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (node.op != OpKind::batch_norm) continue;
    const int64_t channels = node.shape.channels;
    const auto take = [channels](float*& from) {
      float* array = from;
      from += channels;
      return array;
    };
    const int scale = node.parameters[0], bias = node.parameters[1];
    const int input = node.inputs[0];
    BatchNormState& state = norms[i];
    if (graph.norm_behind(input) == static_cast<int>(i) && graph.node(input).has_bias()) {
      state.input_bias = flat.values + layout.offset(graph.node(input).parameters[1]);
    }
    state.scale = flat.values + layout.offset(scale);
    state.bias = flat.values + layout.offset(bias);
    if (flat.vector_gradients != nullptr) {
      state.scale_gradient = flat.vector_gradients + layout.slices[scale].offset;
      state.bias_gradient = flat.vector_gradients + layout.slices[bias].offset;
    }
    state.running_mean = take(next_statistic);
    state.running_variance = take(next_statistic);
    for (float** array : {&state.mean, &state.inverse_deviation, &state.multiplier, &state.shift,
                          &state.a, &state.b, &state.c}) {
      *array = take(next_array);
    }
  }
}

void carve_norms(Carver& carver, const Graph& graph, const ProgramOptions& options,
                 const FlatLayout& layout, StepResources& resources) {
  const int64_t slots = norm_slots(options);
  int64_t all_channels = 0;
  for (const Node& node : graph.nodes()) {
    if (node.op == OpKind::batch_norm) all_channels += node.shape.channels;
  }
  resources.running_statistics_count = 2 * all_channels;
  resources.running_statistics = carver.take<float>(2 * all_channels);
  float* arrays = carver.take<float>(slots * arrays_per_norm * all_channels);
  if (arrays == nullptr) return;  // counting
  resources.nodes = graph.nodes().size();
  resources.norms.resize(slots * resources.nodes);
  for (int64_t slot = 0; slot < slots; ++slot) {
    place_norms(graph, layout, resources, arrays + slot * arrays_per_norm * all_channels,
                std::span(resources.norms).subspan(slot * resources.nodes, resources.nodes));
  }
}

void carve(Carver& carver, const Graph& graph, const ProgramOptions& options,
           const FlatLayout& layout, int multiprocessors, StepResources& resources) {
  carve_parameters(carver, layout, options, resources.parameters);
  carve_sent(carver, layout, options, resources);
  carve_norms(carver, graph, options, layout, resources);
  const int64_t partial_sums_bytes = ReductionScratch::partial_sums_bytes(multiprocessors);
  resources.reduction.partial_sums =
      carver.take<float>(partial_sums_bytes / static_cast<int64_t>(sizeof(float)));
  resources.reduction.arrivals = carver.take<unsigned>(ReductionScratch::arrivals_bytes() /
                                                       static_cast<int64_t>(sizeof(unsigned)));
  resources.reduction.multiprocessors = multiprocessors;
  resources.finish_sums = carver.take<double>(finish_blocks);
  resources.finish_arrivals = carver.take<unsigned>(1);
  resources.state = carver.take<StepState>(1);
  const int64_t labels = options.step_images() * graph.labels_per_sample();
  resources.labels = carver.take<int32_t>(labels);
  resources.fixed_labels = carver.take<int32_t>(labels);
  if (graph.reads_tokens()) {
    const int64_t tokens = options.step_images() * graph.image().tokens();
    resources.tokens = carver.take<int32_t>(tokens);
    resources.fixed_tokens = carver.take<int32_t>(tokens);
  }
  resources.use_fixed_samples = carver.take<int32_t>(1);
  resources.losses = carver.take<float>(options.step_images());
  if (options.pipeline.is_pipelined()) resources.stage_sums = carver.take<double>(2);
  if (!has_stem(graph)) return;
  const int stem = stem_convolution(graph).parameters[0];
  resources.stem_mask = carver.take<uint8_t>(layout.slices[stem].elements);
}

// 1 where a place of the stem's filter is a weight.
void set_stem_mask(const Graph& graph, const FlatLayout& layout, uint8_t* stem_mask) {
  const ParameterSlice& stem = layout.slices[stem_convolution(graph).parameters[0]];
  std::vector<uint8_t> mask(stem.elements, 0);
  const int64_t weights = graph.parameters()[stem_convolution(graph).parameters[0]].size;
  for (int64_t i = 0; i < weights; ++i) mask[stem.place(i)] = 1;
  NM_CALL(cudaMemcpy(stem_mask, mask.data(), mask.size(), cudaMemcpyHostToDevice));
}

// Host memory that the device writes; its address there.
template <class T = DeviceRecord>
T* map_ring(int64_t count, PinnedMemory& owner) {
  void* host = nullptr;
  NM_CALL(cudaHostAlloc(&host, count * sizeof(T), cudaHostAllocMapped));
  owner.reset(host);
  std::uninitialized_fill_n(static_cast<T*>(host), count, T{});
  void* device = nullptr;
  NM_CALL(cudaHostGetDevicePointer(&device, host, 0));
  return static_cast<T*>(device);
}

}  // namespace

int64_t norm_slots(const ProgramOptions& options) {
  const PipelinePlace& place = options.pipeline;
  if (!place.is_pipelined()) return 1;
  return most_in_flight(place.schedule, place.stages, static_cast<int>(options.micro_batches),
                        place.stage);
}

int marks_of_step(const ProgramOptions& options) {
  if (!options.pipeline.is_pipelined()) return 0;
  constexpr int passes = 2;
  return static_cast<int>(2 * passes * options.micro_batches + 2);
}

std::vector<StemForm> forms_of(const Graph& graph, Precision precision) {
  if (!has_stem(graph)) return {StemForm::pad_to_8};
  return stem_forms(stem_convolution(graph), graph.image(), precision);
}

const Node& stem_convolution(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (node.op == OpKind::conv && graph.node(node.inputs[0]).op == OpKind::input) return node;
  }
  throw std::invalid_argument("the CUDA backend needs a convolution that reads the image");
}

int64_t PersistentMemory::bytes_needed(const Graph& graph, const ProgramOptions& options,
                                       const FlatLayout& layout, int multiprocessors) {
  Carver carver(nullptr);
  StepResources resources;
  carve(carver, graph, options, layout, multiprocessors, resources);
  return carver.bytes();
}

PersistentMemory::PersistentMemory(const Graph& graph, const ProgramOptions& options,
                                   const FlatLayout& layout, int multiprocessors, int ring_size,
                                   StepResources& resources)
    : bytes_(bytes_needed(graph, options, layout, multiprocessors)), ring_size_(ring_size) {
  memory_ = allocate_device(bytes_);
  NM_CALL(cudaMemset(memory_.get(), 0, bytes_));
  Carver carver(memory_.get());
  carve(carver, graph, options, layout, multiprocessors, resources);
  if (resources.stem_mask != nullptr) set_stem_mask(graph, layout, resources.stem_mask);
  // A step without a loss leaves no record of its own.
  resources.ring = map_ring(ring_size, records_);
  resources.ring_size = ring_size;
  mark_count_ = resources.mark_count = marks_of_step(options);
  if (mark_count_ > 0) resources.mark_ring = map_ring<uint64_t>(ring_size * mark_count_, marks_);
  NM_CALL(cudaDeviceSynchronize());  // copies above may return before they are done
}

}  // namespace nearmetal::cuda
