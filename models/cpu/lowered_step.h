// One step as oneDNN primitives and loops, in order, with their memory.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "models/cpu/loops.h"
#include "models/graph.h"
#include "models/program.h"
#include "models/step_order.h"

namespace nearmetal::cpu {

/// The blocks of memory that tensors lie in. `step` is shared by tensors of different lifetimes;
/// the others persist. Parameters, their gradients and bf16 copies have the same order.
enum class Region { step, values, gradients, copies, statistics };
inline constexpr int region_count = 5;

struct Tensor {
  dnnl::memory memory;  // without an address until bind_memory()
  Region region = Region::step;
  int64_t offset_bytes = 0;  // in its region, or in `whole`
  Tensor* whole = nullptr;   // of a view: the tensor whose memory it shows in another shape

  dnnl::memory::desc desc() const { return memory.get_desc(); }
  int64_t bytes() const { return static_cast<int64_t>(desc().get_size()); }
  void* data() const { return memory.get_data_handle(); }
  float* floats() const { return static_cast<float*>(data()); }
};

/// A parameter in the layout that the forward primitive chose, fp32, with a gradient alike.
struct ParameterSlice {
  Tensor* value = nullptr;
  Tensor* gradient = nullptr;  // null if forward_only
  Tensor* copy = nullptr;      // in the type of the activations, where it is not fp32
};

/// One primitive or loop.
struct Operation {
  std::string name{};  // node(s) of the graph it computes
  Phase phase{};
  std::string key{};  // of its plan; empty for a loop
  std::string implementation{};
  double flops = 0;
  double bytes = 0;
  std::vector<Tensor*> operands{};
  std::unordered_map<int, dnnl::memory> arguments{};
  std::function<dnnl::primitive()> make{};  // null for a loop
  std::function<void()> run{};              // of a primitive: after bind_memory()
};

/// One that oneDNN has no part in.
Operation own_operation(const std::string& name, Phase phase, const std::string& implementation,
                        int64_t bytes, std::function<void()> run);

/// A stage's view of the pipeline while a step goes on.
struct StageState {
  StageLinks* links = nullptr;
  std::vector<TaskMark> marks;  // of all tasks of the step, in their order
  PipelineSeconds seconds;      // of this step, so far
  double begin_seconds = 0;     // of the span
};

/// The state that loops read and write beside tensors; the program owns it and keeps its address.
struct StepState {
  std::vector<int32_t> labels;            // by image of the step, or two by sequence
  std::vector<float> losses;              // by image or sequence of the step
  std::vector<int32_t> tokens;            // ids, by sequence of the step
  int64_t first_image = 0;                // of the micro-batch that is computed
  std::vector<float> running_statistics;  // as the region of statistics
  float loss_scale = 1;
  std::array<double, 2> sums{};  // squares of the gradient, losses; of a stage, then of all
  double exposed_communication_seconds = 0;  // of this step, so far
  StageState stage;
};

/// Operations [begin, end) of one event of a step; none of what the program does itself.
struct LoweredEvent {
  StepEvent event;
  size_t begin = 0;
  size_t end = 0;
  Tensor* images = nullptr;  // that a forward pass reads; null: it receives values or reads tokens
};

struct LoweredStep {
  std::deque<Tensor> tensors;
  std::vector<Operation> operations;
  std::vector<LoweredEvent> events;    // of the whole step, in their order
  std::vector<ParameterSlice> slices;  // by parameter
  std::vector<NormStatistics> norms;   // in graph order
  Tensor* images = nullptr;  // of the first micro-batch; null where a stage receives values
  Tensor* logits = nullptr;  // of a graph without a loss
  std::array<int64_t, region_count> region_bytes{};

  int64_t& bytes(Region region) { return region_bytes[static_cast<size_t>(region)]; }
  int64_t bytes(Region region) const { return region_bytes[static_cast<size_t>(region)]; }
  int64_t total_bytes() const;
  /// Elements of the running statistics, and of those of one micro-batch.
  int64_t statistics_elements() const {
    return norms.empty() ? 0 : norms.back().offset + 2 * norms.back().stride;
  }
};

/// Gives every tensor its address and makes the primitives.
void bind_memory(LoweredStep& step, const std::array<void*, region_count>& regions,
                 const dnnl::stream& stream);

/// The same dimensions in canonical layout: rows of the leading one behind one another, in fp32.
dnnl::memory::desc canonical_desc(const dnnl::memory::desc& device);

/// The same values in another layout or type; allocates.
void reorder(const dnnl::memory& from, const dnnl::memory& to, const dnnl::stream& stream);

/// The flat gradient and where it is summed: in the same memory where it travels in fp32, else in
/// memory of its own, of the same number of elements.
struct FlatGradient {
  float* computed = nullptr;
  void* sent = nullptr;
  Precision sent_type = Precision::fp32;
  // The sum over the micro-batches before the last; null where there are none.
  const float* sum_before = nullptr;
  int64_t micro_batches = 1;

  bool is_converted() const { return sent != computed; }
};

/// Makes elements [begin, end) of the gradient of the last micro-batch the mean over all.
Operation mean_of_micro_batches(const std::string& name, const FlatGradient& gradient,
                                int64_t begin, int64_t end);

/// Cuts the flat gradient into buckets of at least `bucket_bytes` as sent (0: one), binds them to
/// `all_reduce` and adds to a bound step: the start of each bucket behind the operation that
/// completes it, and the end of all before the update; before its start each bucket becomes the
/// mean over micro-batches; where it is converted, the conversion of each bucket before its start,
/// and that of all sums after the end, which counts as exposed.
void insert_exchange(LoweredStep& step, AllReduce& all_reduce, int64_t bucket_bytes,
                     const FlatGradient& gradient, StepState& state);

}  // namespace nearmetal::cpu
