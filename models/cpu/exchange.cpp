#include "models/cpu/exchange.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string_view>

#include "models/gradient_buckets.h"

namespace nearmetal {
namespace {

// The flat gradient lies last layer first. In bytes; by the last operation that writes each.
std::vector<GradientSlice> slices_of(const LoweredStep& step) {
  std::map<int64_t, size_t> last;
  for (size_t i = 0; i < step.operations.size(); ++i) {
    for (const Tensor* operand : step.operations[i].operands) {
      if (operand->region == Region::gradients) last[operand->offset_bytes] = i;
    }
  }
  std::vector<GradientSlice> slices;
  for (const auto& [begin, operation] : last) slices.push_back({begin, operation});
  return slices;
}

Operation exchange(const std::string& name, const AllReduce& all_reduce, double bytes,
                   StepState& state, std::function<void()> run) {
  Operation operation{name, "exchange", "",     all_reduce.library(), 0, bytes, {},
                      {},   nullptr,    nullptr};
  operation.run = [&state, run = std::move(run)] {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begin = Clock::now();
    run();
    state.exposed_communication_seconds +=
        std::chrono::duration<double>(Clock::now() - begin).count();
  };
  return operation;
}

}  // namespace

void insert_exchange(LoweredStep& step, AllReduce& all_reduce, int64_t bucket_bytes,
                     float* gradient, StepState& state) {
  std::erase_if(step.operations,
                [](const Operation& o) { return std::string_view(o.phase) == "exchange"; });
  const std::vector<BucketRange> buckets =
      cut_buckets(slices_of(step), step.bytes(Region::gradients), bucket_bytes);
  std::vector<GradientBucket> bound;
  for (const BucketRange& bucket : buckets) {
    bound.push_back({gradient + bucket.begin / 4, (bucket.end - bucket.begin) / 4});
  }
  all_reduce.bind(bound);

  std::vector<Operation> operations;
  size_t next = 0;
  for (size_t i = 0; i < step.operations.size(); ++i) {
    operations.push_back(std::move(step.operations[i]));
    for (; next < buckets.size() && buckets[next].complete_after == i; ++next) {
      const int bucket = static_cast<int>(next);
      operations.push_back(exchange(
          "bucket " + std::to_string(bucket), all_reduce, static_cast<double>(bound[next].bytes()),
          state, [&all_reduce, bucket] { all_reduce.start(bucket, 1, nullptr); }));
    }
  }
  const auto update = std::find_if(operations.begin(), operations.end(), [](const Operation& o) {
    return std::string_view(o.phase) == "update";
  });
  operations.insert(update, exchange("all buckets", all_reduce, 0, state,
                                     [&all_reduce] { all_reduce.finish(nullptr); }));
  step.operations = std::move(operations);
}

}  // namespace nearmetal
