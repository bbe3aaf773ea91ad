#include "models/cuda/compiler/exchange.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "models/cuda/kernels/update.h"
#include "models/memory_plan.h"
#include "models/step_order.h"

namespace nearmetal::cuda {
namespace {

// By the begin of each matrix, in elements, the last kernel that writes its gradient.
std::map<int64_t, size_t> completed_by(const LoweredStep& step, const FlatLayout& layout) {
  std::map<int64_t, size_t> last;
  for (size_t k = 0; k < step.kernels.size(); ++k) {
    if (const auto& matrix = step.kernels[k].gradient_of) last[layout.slices[*matrix].offset] = k;
  }
  return last;
}

// Where the backward pass leaves gradients, where the sum over the micro-batches before lies, null
// if there are none, and where they are summed: in the same memory unless they travel in another
// type.
struct Sent {
  GradientBucket computed;
  float* sum_before = nullptr;
  GradientBucket summed;

  bool is_converted() const { return summed.data != computed.data; }
  Sent part(int64_t begin, int64_t end) const {
    const auto cut = [&](const GradientBucket& whole) {
      return GradientBucket{static_cast<char*>(whole.data) + begin * element_bytes(whole.type),
                            end - begin, whole.type};
    };
    return {cut(computed), sum_before == nullptr ? nullptr : sum_before + begin, cut(summed)};
  }
};

Sent section(const GradientBucket& computed, float* sum_before, void* sent,
             const ProgramOptions& options) {
  if (sent == nullptr) return {computed, sum_before, computed};
  return {computed, sum_before, {sent, computed.elements, *options.gradient_type}};
}

Kernel exchange(const std::string& name, const std::string& implementation, int64_t bytes,
                std::function<void(cudaStream_t)> launch) {
  return {.name = name,
          .phase = Phase::exchange,
          .implementation = implementation,
          .bytes = static_cast<double>(bytes),
          .launch = std::move(launch)};
}

Kernel conversion(const std::string& name, const GradientBucket& from, const GradientBucket& to) {
  return exchange(name + " from " + to_string(from.type) + " to " + to_string(to.type),
                  "own convert", from.bytes() + to.bytes(), [from, to](cudaStream_t stream) {
                    launch_convert(from.type, from.data, to.type, to.data, to.elements, stream);
                  });
}

Kernel mean(const std::string& name, const Sent& part, int64_t micro_batches) {
  const MicroBatchGradient operands{part.computed.type, part.computed.data, part.sum_before,
                                    part.computed.elements};
  return exchange(name + ", mean of " + std::to_string(micro_batches) + " micro-batches", "own",
                  2 * part.computed.bytes() + 4 * part.computed.elements,
                  [operands, micro_batches](cudaStream_t stream) {
                    launch_add_micro_batch(MicroBatch::last, operands, micro_batches, stream);
                  });
}

// The sections of the flat gradient, in the order of GradientSection.
std::vector<Sent> sections_of(const FlatLayout& layout, const ProgramOptions& options,
                              const StepResources& resources) {
  const FlatParameters& flat = resources.parameters;
  float* vector_sums =
      flat.sum_before == nullptr ? nullptr : flat.sum_before + layout.matrix_elements;
  return {section({flat.matrix_gradients, layout.matrix_elements, stored_type(options.precision)},
                  flat.sum_before, resources.sent_matrices, options),
          section({flat.vector_gradients, layout.vector_elements, Precision::fp32}, vector_sums,
                  resources.sent_vectors, options)};
}

Kernel start_of(AllReduce& all_reduce, size_t first, size_t count, int64_t bytes) {
  return exchange("bucket " + std::to_string(first), all_reduce.library(), bytes,
                  [&all_reduce, first = static_cast<int>(first), count = static_cast<int>(count)](
                      cudaStream_t stream) { all_reduce.start(first, count, stream); });
}

Kernel end_of(AllReduce& all_reduce, StepState* state) {
  return exchange("all buckets", all_reduce.library(), 0,
                  [&all_reduce, state](cudaStream_t stream) {
                    launch_mark_backward_end(state, stream);
                    all_reduce.finish(stream);
                  });
}

}  // namespace

void insert_exchange(LoweredStep& step, const FlatLayout& layout, const ProgramOptions& options,
                     const StepResources& resources, AllReduce& all_reduce, int64_t bucket_bytes) {
  std::erase_if(step.kernels, [](const Kernel& kernel) { return kernel.phase == Phase::exchange; });
  const auto first_update = std::ranges::find(step.kernels, Phase::update, &Kernel::phase);
  const auto update = static_cast<size_t>(first_update - step.kernels.begin());
  const std::vector<Sent> sent = sections_of(layout, options, resources);
  const std::vector<GradientSection> sections = {
      {cut_buckets(completed_by(step, layout), layout.matrix_elements,
                   bucket_bytes / element_bytes(sent[0].summed.type)),
       sent[0].is_converted()},
      // Vectors are small, and complete only at the end of the backward pass.
      {{{0, layout.vector_elements, update - 1}}, sent[1].is_converted()}};
  std::vector<Sent> buckets;
  std::vector<GradientBucket> summed;
  for (size_t s = 0; s < sections.size(); ++s) {
    for (const BucketRange& range : sections[s].buckets) {
      buckets.push_back(sent[s].part(range.begin, range.end));
      summed.push_back(buckets.back().summed);
    }
  }
  all_reduce.bind(std::move(summed));
  const auto make = [&](const ExchangeEvent& event) {
    const std::string name = "bucket " + std::to_string(event.bucket);
    const Sent& whole = sent[event.section];
    switch (event.kind) {
      case ExchangeEventKind::mean:
        return mean(name, buckets[event.bucket], options.micro_batches);
      case ExchangeEventKind::convert:
        return conversion(name, buckets[event.bucket].computed, buckets[event.bucket].summed);
      case ExchangeEventKind::start: {
        int64_t bytes = 0;
        for (size_t i = 0; i < event.count; ++i) bytes += buckets[event.bucket + i].summed.bytes();
        return start_of(all_reduce, event.bucket, event.count, bytes);
      }
      case ExchangeEventKind::finish:
        return end_of(all_reduce, resources.state);
      case ExchangeEventKind::convert_back:
        return conversion(event.section == 0 ? "matrices" : "vectors", whole.summed,
                          whole.computed);
    }
    throw std::logic_error("unnamed ExchangeEventKind");
  };
  const std::vector<ExchangeEvent> events =
      exchange_order(sections, options.micro_batches > 1, update);
  step.kernels = with_exchange(std::move(step.kernels), events, make);
}

}  // namespace nearmetal::cuda
