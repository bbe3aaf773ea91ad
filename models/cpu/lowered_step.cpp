#include "models/cpu/lowered_step.h"

#include <iterator>
#include <map>
#include <numeric>
#include <stdexcept>

#include "models/cpu/onednn.h"

namespace nearmetal::cpu {
namespace {

// By the begin of each gradient, in bytes, the last operation that writes it.
std::map<int64_t, size_t> completed_by(const LoweredStep& step) {
  std::map<int64_t, size_t> last;
  for (size_t i = 0; i < step.operations.size(); ++i) {
    for (const Tensor* operand : step.operations[i].operands) {
      if (operand->region == Region::gradients) last[operand->offset_bytes] = i;
    }
  }
  return last;
}

Operation own_operation(const std::string& name, const std::string& implementation, int64_t bytes,
                        std::function<void()> run) {
  return {.name = name,
          .phase = Phase::exchange,
          .implementation = implementation,
          .bytes = static_cast<double>(bytes),
          .run = std::move(run)};
}

// Nothing else is computed meanwhile.
Operation exposed(Operation operation, StepState& state) {
  operation.run = [&state, run = std::move(operation.run)] {
    const double begin = steady_seconds();
    run();
    state.exposed_communication_seconds += steady_seconds() - begin;
  };
  return operation;
}

// In bytes of the fp32 gradient.
std::vector<GradientBucket> memory_of(const std::vector<BucketRange>& ranges,
                                      const FlatGradient& gradient) {
  const int64_t size = element_bytes(gradient.sent_type);
  std::vector<GradientBucket> buckets;
  for (const BucketRange& range : ranges) {
    buckets.push_back({static_cast<char*>(gradient.sent) + range.begin / 4 * size,
                       (range.end - range.begin) / 4, gradient.sent_type});
  }
  return buckets;
}

Operation conversion(const std::string& name, Precision from, const void* in, Precision to,
                     void* out, int64_t elements) {
  return own_operation(name, "own loop", elements * (element_bytes(from) + element_bytes(to)),
                       [=] { convert(from, in, to, out, elements); });
}

// The operations for one bucket once the backward pass has completed it.
void append_start(std::vector<Operation>& operations, int number, const BucketRange& range,
                  const GradientBucket& bucket, const FlatGradient& gradient, AllReduce& all_reduce,
                  StepState& state) {
  const std::string name = "bucket " + std::to_string(number);
  if (gradient.sum_before != nullptr) {
    operations.push_back(mean_of_micro_batches(name, gradient, range.begin / 4, range.end / 4));
  }
  if (gradient.is_converted()) {
    operations.push_back(conversion(name + " to " + to_string(bucket.type), Precision::fp32,
                                    gradient.computed + range.begin / 4, bucket.type, bucket.data,
                                    bucket.elements));
  }
  operations.push_back(
      exposed(own_operation(name, all_reduce.library(), bucket.bytes(),
                            [&all_reduce, number] { all_reduce.start(number, 1, nullptr); }),
              state));
}

// The operations that the update waits for.
std::vector<Operation> ends(const FlatGradient& gradient, int64_t elements, AllReduce& all_reduce,
                            StepState& state) {
  std::vector<Operation> operations = {
      exposed(own_operation("all buckets", all_reduce.library(), 0,
                            [&all_reduce] { all_reduce.finish(nullptr); }),
              state)};
  if (!gradient.is_converted()) return operations;
  operations.push_back(exposed(
      conversion(std::string("all buckets from ") + to_string(gradient.sent_type),
                 gradient.sent_type, gradient.sent, Precision::fp32, gradient.computed, elements),
      state));
  return operations;
}

}  // namespace

int64_t LoweredStep::total_bytes() const {
  return std::accumulate(region_bytes.begin(), region_bytes.end(), int64_t{0});
}

void bind_memory(LoweredStep& step, const std::array<void*, region_count>& regions,
                 const dnnl::stream& stream) {
  for (Tensor& tensor : step.tensors) {
    char* region = static_cast<char*>(regions[static_cast<size_t>(tensor.region)]);
    const int64_t whole = tensor.whole != nullptr ? tensor.whole->offset_bytes : 0;
    tensor.memory.set_data_handle(region + whole + tensor.offset_bytes);
  }
  for (Operation& operation : step.operations) {
    if (!operation.make) continue;
    operation.run = [primitive = operation.make(), arguments = operation.arguments, stream,
                     name = operation.name] {
      try {
        primitive.execute(stream, arguments);
      } catch (const dnnl::error& error) {
        throw std::runtime_error("oneDNN failed in " + name + ": " + error.what());
      }
    };
  }
}

dnnl::memory::desc canonical_desc(const dnnl::memory::desc& device) {
  const dnnl::memory::dims dims = dims_of(device);
  dnnl::memory::dims strides(dims.size(), 1);
  for (size_t i = strides.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
  return {dims, dnnl::memory::data_type::f32, strides};
}

void reorder(const dnnl::memory& from, const dnnl::memory& to, const dnnl::stream& stream) {
  dnnl::memory source = from, target = to;
  dnnl::reorder(source, target).execute(stream, source, target);
}

Operation mean_of_micro_batches(const std::string& name, const FlatGradient& gradient,
                                int64_t begin, int64_t end) {
  return own_operation(
      name + ", mean of " + std::to_string(gradient.micro_batches) + " micro-batches", "own loop",
      3 * 4 * (end - begin), [=] {
        mean_of_sums(gradient.sum_before + begin, gradient.computed + begin, gradient.micro_batches,
                     end - begin);
      });
}

void insert_exchange(LoweredStep& step, AllReduce& all_reduce, int64_t bucket_bytes,
                     const FlatGradient& gradient, StepState& state) {
  std::erase_if(step.operations, [](const Operation& o) { return o.phase == Phase::exchange; });
  const int64_t bytes = step.bytes(Region::gradients);
  const std::vector<BucketRange> ranges =
      cut_buckets(completed_by(step), bytes, bucket_bytes / element_bytes(gradient.sent_type) * 4);
  const std::vector<GradientBucket> buckets = memory_of(ranges, gradient);
  all_reduce.bind(buckets);

  std::vector<Operation> operations;
  size_t next = 0;
  for (size_t i = 0; i < step.operations.size(); ++i) {
    operations.push_back(std::move(step.operations[i]));
    for (; next < ranges.size() && ranges[next].complete_after == i; ++next) {
      append_start(operations, static_cast<int>(next), ranges[next], buckets[next], gradient,
                   all_reduce, state);
    }
  }
  const auto update = std::ranges::find(operations, Phase::update, &Operation::phase);
  std::vector<Operation> end = ends(gradient, bytes / 4, all_reduce, state);
  operations.insert(update, std::make_move_iterator(end.begin()),
                    std::make_move_iterator(end.end()));
  step.operations = std::move(operations);
}

}  // namespace nearmetal::cpu
