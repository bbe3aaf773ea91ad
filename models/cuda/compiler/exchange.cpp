#include <map>

#include "models/cuda/compiler/lowering.h"
#include "models/cuda/kernels/update.h"
#include "models/memory_plan.h"

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

// The kernels around the sums of one program.
class Exchange {
 public:
  Exchange(const FlatLayout& layout, const ProgramOptions& options, const StepResources& resources,
           AllReduce& all_reduce)
      : all_reduce_(all_reduce),
        state_(resources.state),
        micro_batches_(options.micro_batches),
        matrices_(section({resources.parameters.matrix_gradients, layout.matrix_elements,
                           stored_type(options.precision)},
                          resources.parameters.sum_before, resources.sent_matrices, options)),
        vectors_(section(
            {resources.parameters.vector_gradients, layout.vector_elements, Precision::fp32},
            micro_batches_ == 1 ? nullptr
                                : resources.parameters.sum_before + layout.matrix_elements,
            resources.sent_vectors, options)) {}

  Precision sent_type() const { return matrices_.summed.type; }

  void bind(const std::vector<BucketRange>& ranges) {
    for (const BucketRange& range : ranges)
      buckets_.push_back(matrices_.part(range.begin, range.end));
    buckets_.push_back(vectors_);
    std::vector<GradientBucket> summed;
    for (const Sent& bucket : buckets_) summed.push_back(bucket.summed);
    all_reduce_.bind(std::move(summed));
  }

  void append_start(size_t first, int count, std::vector<Kernel>& kernels) const {
    const std::string name = "bucket " + std::to_string(first);
    int64_t bytes = 0;
    for (size_t i = first; i < first + count; ++i) {
      const Sent& bucket = buckets_[i];
      bytes += bucket.summed.bytes();
      if (micro_batches_ > 1) {
        kernels.push_back(mean("bucket " + std::to_string(i), bucket, micro_batches_));
      }
      if (!bucket.is_converted()) continue;
      kernels.push_back(conversion("bucket " + std::to_string(i), bucket.computed, bucket.summed));
    }
    kernels.push_back(
        exchange(name, all_reduce_.library(), bytes,
                 [&all_reduce = all_reduce_, first = static_cast<int>(first),
                  count](cudaStream_t stream) { all_reduce.start(first, count, stream); }));
  }

  void append_end(std::vector<Kernel>& kernels) const {
    kernels.push_back(exchange("all buckets", all_reduce_.library(), 0,
                               [&all_reduce = all_reduce_, state = state_](cudaStream_t stream) {
                                 launch_mark_backward_end(state, stream);
                                 all_reduce.finish(stream);
                               }));
    if (matrices_.is_converted()) {
      kernels.push_back(conversion("matrices", matrices_.summed, matrices_.computed));
    }
    if (vectors_.is_converted()) {
      kernels.push_back(conversion("vectors", vectors_.summed, vectors_.computed));
    }
  }

 private:
  AllReduce& all_reduce_;
  StepState* state_;
  int64_t micro_batches_;
  Sent matrices_, vectors_;
  std::vector<Sent> buckets_;
};

}  // namespace

void insert_exchange(LoweredStep& step, const FlatLayout& layout, const ProgramOptions& options,
                     const StepResources& resources, AllReduce& all_reduce, int64_t bucket_bytes) {
  std::erase_if(step.kernels, [](const Kernel& kernel) { return kernel.phase == Phase::exchange; });
  Exchange exchange(layout, options, resources, all_reduce);
  const std::vector<BucketRange> buckets =
      cut_buckets(completed_by(step, layout), layout.matrix_elements,
                  bucket_bytes / element_bytes(exchange.sent_type()));
  exchange.bind(buckets);

  std::vector<Kernel> kernels;
  size_t next = 0;
  for (size_t k = 0; k < step.kernels.size(); ++k) {
    if (step.kernels[k].phase == Phase::update && next < buckets.size()) {
      exchange.append_start(next++, 2, kernels);
      exchange.append_end(kernels);
    }
    kernels.push_back(std::move(step.kernels[k]));
    for (; next + 1 < buckets.size() && buckets[next].complete_after == k; ++next) {
      exchange.append_start(next, 1, kernels);
    }
  }
  step.kernels = std::move(kernels);
}

}  // namespace nearmetal::cuda
