#include "models/cpu/exchange.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string_view>

namespace nearmetal {
namespace {

struct Bucket {
  int64_t begin = 0;  // in bytes of the flat gradient
  int64_t end = 0;
  size_t complete_after = 0;  // index of an operation
};

// By gradient: the last operation that writes it.
std::map<const Tensor*, size_t> last_uses(const LoweredStep& step) {
  std::map<const Tensor*, size_t> last;
  for (size_t i = 0; i < step.operations.size(); ++i) {
    for (const Tensor* operand : step.operations[i].operands) {
      if (operand->region == Region::gradients) last[operand] = i;
    }
  }
  return last;
}

// The flat gradient lies last layer first, so that buckets are complete one after another.
std::vector<Bucket> cut(const LoweredStep& step, int64_t bucket_bytes) {
  const int64_t total = step.bytes(Region::gradients);
  const int64_t wanted = bucket_bytes > 0 ? bucket_bytes : total;
  const auto last = last_uses(step);
  std::vector<Bucket> buckets{Bucket{}};
  for (auto slice = step.slices.rbegin(); slice != step.slices.rend(); ++slice) {
    const int64_t begin = slice->gradient->offset_bytes;
    if (begin - buckets.back().begin >= wanted) {
      buckets.back().end = begin;
      buckets.push_back({begin, begin, buckets.back().complete_after});
    }
    size_t& complete = buckets.back().complete_after;
    complete = std::max(complete, last.at(slice->gradient));
  }
  buckets.back().end = total;
  return buckets;
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
  const std::vector<Bucket> buckets = cut(step, bucket_bytes);
  std::vector<GradientBucket> bound;
  for (const Bucket& bucket : buckets) {
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
