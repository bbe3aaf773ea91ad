#include "comm/gpu/nccl_hierarchical.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace nearmetal {

HierarchicalAllReduce::HierarchicalAllReduce(const std::string& group, const HostPlace& place,
                                             int gpu, BetweenHosts between)
    : GpuAllReduce(place.rank, place.ranks(), gpu),
      place_(place),
      between_(std::move(between)),
      communicator_(join_group(group, place.local_rank, place.local_ranks)) {}

GradientBucket HierarchicalAllReduce::part(int bucket, int local_rank) const {
  const GradientBucket& whole = buckets()[bucket];
  const Part part = part_of(whole.elements, place_.local_ranks, local_rank);
  return {static_cast<char*>(whole.data) + part.begin * element_bytes(whole.type), part.elements,
          whole.type};
}

// Parts begin at multiples of 64 elements in pinned memory, too.
void HierarchicalAllReduce::bind(std::vector<GradientBucket> buckets) {
  GpuAllReduce::bind(std::move(buckets));
  constexpr int64_t alignment = 256;
  staged_.clear();
  std::vector<int64_t> offsets;
  int64_t bytes = 0;
  for (size_t i = 0; i < this->buckets().size(); ++i) {
    staged_.push_back({&between_, part(static_cast<int>(i), place_.local_rank)});
    offsets.push_back(bytes);
    bytes += (staged_.back().values.bytes() + alignment - 1) / alignment * alignment;
  }
  void* memory = nullptr;
  pinned_.reset();
  NM_CALL(cudaHostAlloc(&memory, std::max(bytes, alignment), cudaHostAllocDefault));
  pinned_.reset(memory);
  for (size_t i = 0; i < staged_.size(); ++i) {
    staged_[i].values.data = static_cast<char*>(memory) + offsets[i];
  }
}

// The driver calls this between two operations of the stream: nothing of CUDA may be called in it,
// nothing thrown out of it.
void HierarchicalAllReduce::sum_staged(void* staged) {
  const Staged& task = *static_cast<const Staged*>(staged);
  try {
    task.between->sum->sum(task.values);
  } catch (const std::exception& error) {
    task.between->failed(error.what());
  }
}

void HierarchicalAllReduce::reduce_parts(int first, int count) {
  NM_CALL(ncclGroupStart());
  for (int bucket = first; bucket < first + count; ++bucket) {
    for (int owner = 0; owner < place_.local_ranks; ++owner) {
      const GradientBucket values = part(bucket, owner);
      NM_CALL(ncclReduce(values.data, values.data, values.elements, nccl_type(values.type), ncclSum,
                         owner, communicator_.get(), stream()));
    }
  }
  NM_CALL(ncclGroupEnd());
}

void HierarchicalAllReduce::spread_parts(int first, int count) {
  NM_CALL(ncclGroupStart());
  for (int bucket = first; bucket < first + count; ++bucket) {
    for (int owner = 0; owner < place_.local_ranks; ++owner) {
      const GradientBucket values = part(bucket, owner);
      NM_CALL(ncclBroadcast(values.data, values.data, values.elements, nccl_type(values.type),
                            owner, communicator_.get(), stream()));
    }
  }
  NM_CALL(ncclGroupEnd());
}

void HierarchicalAllReduce::sum(int first, int count) {
  reduce_parts(first, count);
  for (int bucket = first; bucket < first + count; ++bucket) {
    Staged& staged = staged_[bucket];
    // So is that of the other hosts' ranks with which it would be summed.
    if (staged.values.elements == 0) continue;
    const GradientBucket own = part(bucket, place_.local_rank);
    NM_CALL(cudaMemcpyAsync(staged.values.data, own.data, own.bytes(), cudaMemcpyDeviceToHost,
                            stream()));
    NM_CALL(cudaLaunchHostFunc(stream(), sum_staged, &staged));
    NM_CALL(cudaMemcpyAsync(own.data, staged.values.data, own.bytes(), cudaMemcpyHostToDevice,
                            stream()));
  }
  spread_parts(first, count);
}

}  // namespace nearmetal
