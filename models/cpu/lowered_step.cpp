#include "models/cpu/lowered_step.h"

#include <map>
#include <numeric>
#include <stdexcept>

#include "models/cpu/onednn.h"

namespace nearmetal::cpu {
namespace {

// By the begin of each gradient, in elements, the last operation that writes it.
std::map<int64_t, size_t> completed_by(const LoweredStep& step) {
  std::map<int64_t, size_t> last;
  for (size_t i = 0; i < step.operations.size(); ++i) {
    for (const Tensor* operand : step.operations[i].operands) {
      if (operand->region == Region::gradients) last[operand->offset_bytes / 4] = i;
    }
  }
  return last;
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

Operation conversion(const std::string& name, Precision from, const void* in, Precision to,
                     void* out, int64_t elements) {
  return own_operation(name, Phase::exchange, "own loop",
                       elements * (element_bytes(from) + element_bytes(to)),
                       [=] { convert(from, in, to, out, elements); });
}

}  // namespace

Operation own_operation(const std::string& name, Phase phase, const std::string& implementation,
                        int64_t bytes, std::function<void()> run) {
  return {.name = name,
          .phase = phase,
          .implementation = implementation,
          .bytes = static_cast<double>(bytes),
          .run = std::move(run)};
}

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
      name + ", mean of " + std::to_string(gradient.micro_batches) + " micro-batches",
      Phase::exchange, "own loop", 3 * 4 * (end - begin), [=] {
        mean_of_sums(gradient.sum_before + begin, gradient.computed + begin, gradient.micro_batches,
                     end - begin);
      });
}

void insert_exchange(LoweredStep& step, AllReduce& all_reduce, int64_t bucket_bytes,
                     const FlatGradient& gradient, StepState& state) {
  std::erase_if(step.operations, [](const Operation& o) { return o.phase == Phase::exchange; });
  const int64_t elements = step.bytes(Region::gradients) / 4;
  const int64_t size = element_bytes(gradient.sent_type);
  const std::vector<BucketRange> ranges =
      cut_buckets(completed_by(step), elements, bucket_bytes / size);
  std::vector<GradientBucket> buckets;
  for (const BucketRange& range : ranges) {
    buckets.push_back({static_cast<char*>(gradient.sent) + range.begin * size,
                       range.end - range.begin, gradient.sent_type});
  }
  all_reduce.bind(buckets);

  const auto operation_of = [&](const ExchangeEvent& event) {
    const std::string name = "bucket " + std::to_string(event.bucket);
    const BucketRange& range = ranges[event.bucket];
    const GradientBucket& bucket = buckets[event.bucket];
    switch (event.kind) {
      case ExchangeEventKind::mean:
        return mean_of_micro_batches(name, gradient, range.begin, range.end);
      case ExchangeEventKind::convert:
        return conversion(name + " to " + to_string(bucket.type), Precision::fp32,
                          gradient.computed + range.begin, bucket.type, bucket.data,
                          bucket.elements);
      case ExchangeEventKind::start:
        return exposed(own_operation(name, Phase::exchange, all_reduce.library(), bucket.bytes(),
                                     [&all_reduce, first = static_cast<int>(event.bucket),
                                      count = static_cast<int>(event.count)] {
                                       all_reduce.start(first, count, nullptr);
                                     }),
                       state);
      case ExchangeEventKind::finish:
        return exposed(own_operation("all buckets", Phase::exchange, all_reduce.library(), 0,
                                     [&all_reduce] { all_reduce.finish(nullptr); }),
                       state);
      case ExchangeEventKind::convert_back:
        break;
    }
    return exposed(
        conversion(std::string("all buckets from ") + to_string(gradient.sent_type),
                   gradient.sent_type, gradient.sent, Precision::fp32, gradient.computed, elements),
        state);
  };
  const auto update = std::ranges::find(step.operations, Phase::update, &Operation::phase);
  const GradientSection all{ranges, gradient.is_converted()};
  const std::vector<ExchangeEvent> events =
      exchange_order({&all, 1}, gradient.sum_before != nullptr,
                     static_cast<size_t>(update - step.operations.begin()));
  step.operations = with_exchange(std::move(step.operations), events, operation_of);
}

}  // namespace nearmetal::cpu
