#include "models/cuda/exchange.h"

#include <map>
#include <string_view>

#include "models/gradient_buckets.h"

namespace nearmetal {
namespace {

// Of the matrices, which lie last layer first. In elements; by the last kernel that writes each.
std::vector<GradientSlice> slices_of(const LoweredStep& step, const FlatLayout& layout) {
  std::map<int64_t, size_t> last;
  for (size_t k = 0; k < step.kernels.size(); ++k) {
    if (const auto& matrix = step.kernels[k].gradient_of) last[layout.slices[*matrix].offset] = k;
  }
  std::vector<GradientSlice> slices;
  for (const auto& [begin, kernel] : last) slices.push_back({begin, kernel});
  return slices;
}

std::vector<GradientBucket> memory_of(const std::vector<BucketRange>& buckets, Precision precision,
                                      const FlatParameters& flat) {
  const int64_t size = element_bytes(precision);
  const Precision type = size == 4 ? Precision::fp32 : precision;
  std::vector<GradientBucket> bound;
  for (const BucketRange& bucket : buckets) {
    bound.push_back({static_cast<char*>(flat.matrix_gradients) + bucket.begin * size,
                     bucket.end - bucket.begin, type});
  }
  bound.push_back({flat.vector_gradients, flat.vector_elements, Precision::fp32});
  return bound;
}

Kernel exchange(const std::string& name, const AllReduce& all_reduce, int64_t bytes,
                std::function<void(cudaStream_t)> launch) {
  Kernel kernel;
  kernel.name = name;
  kernel.phase = "exchange";
  kernel.implementation = all_reduce.library();
  kernel.bytes = static_cast<double>(bytes);
  kernel.launch = std::move(launch);
  return kernel;
}

}  // namespace

void insert_exchange(LoweredStep& step, const FlatLayout& layout, Precision precision,
                     const StepResources& resources, AllReduce& all_reduce, int64_t bucket_bytes) {
  std::erase_if(step.kernels,
                [](const Kernel& kernel) { return std::string_view(kernel.phase) == "exchange"; });
  const std::vector<BucketRange> buckets = cut_buckets(
      slices_of(step, layout), layout.matrix_elements, bucket_bytes / element_bytes(precision));
  const std::vector<GradientBucket> bound = memory_of(buckets, precision, resources.parameters);
  all_reduce.bind(bound);

  const auto start = [&](size_t bucket, int count) {
    int64_t bytes = 0;
    for (int i = 0; i < count; ++i) bytes += bound[bucket + i].bytes();
    return exchange("bucket " + std::to_string(bucket), all_reduce, bytes,
                    [&all_reduce, first = static_cast<int>(bucket), count](cudaStream_t stream) {
                      all_reduce.start(first, count, stream);
                    });
  };
  std::vector<Kernel> kernels;
  size_t next = 0;
  for (size_t k = 0; k < step.kernels.size(); ++k) {
    if (std::string_view(step.kernels[k].phase) == "update" && next < buckets.size()) {
      kernels.push_back(start(next++, 2));
      kernels.push_back(exchange("all buckets", all_reduce, 0,
                                 [&all_reduce, state = resources.state](cudaStream_t stream) {
                                   launch_mark_backward_end(state, stream);
                                   all_reduce.finish(stream);
                                 }));
    }
    kernels.push_back(std::move(step.kernels[k]));
    for (; next + 1 < buckets.size() && buckets[next].complete_after == k; ++next) {
      kernels.push_back(start(next, 1));
    }
  }
  step.kernels = std::move(kernels);
}

}  // namespace nearmetal
