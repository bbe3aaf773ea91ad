// Sums gradients in the memory of GPUs by NCCL: over one group of all ranks, or over those of each
// host and between hosts in their memory.
#include <algorithm>
#include <utility>

#include "comm/gpu/gpu_all_reduce.h"
#include "comm/gpu/nccl_group.h"
#include "models/load_module.h"
#include "models/memory_plan.h"

namespace nearmetal {
namespace {

class NcclAllReduce : public GpuAllReduce {
 public:
  explicit NcclAllReduce(const JoinRequest& request)
      : GpuAllReduce(request), communicator_(join_group(request.group, rank(), ranks())) {}

  std::string library() const override { return nccl_version(); }

 private:
  // The update divides by the ranks: an average inside NCCL rules out some of its algorithms.
  void sum(int first, int count) override {
    NM_CALL(ncclGroupStart());
    for (int i = first; i < first + count; ++i) {
      const GradientBucket& bucket = buckets()[i];
      NM_CALL(ncclAllReduce(bucket.data, bucket.data, bucket.elements, nccl_type(bucket.type),
                            ncclSum, communicator_.get(), stream()));
    }
    NM_CALL(ncclGroupEnd());
  }

  Communicator communicator_;
};

// A bucket is cut into as many parts as a host has ranks. NCCL leaves part i of the sums of a host
// with its rank i, which copies it into pinned memory, sums it with the ranks i of the other hosts
// on a thread of the driver, and copies it back; NCCL spreads the parts over the host. Each host
// takes part with every bucket once, its ranks side by side. For hosts whose NICs do not reach GPU
// memory.
class HierarchicalAllReduce : public GpuAllReduce {
 public:
  explicit HierarchicalAllReduce(const JoinRequest& request);

  std::string library() const override { return nccl_version() + " + " + between_->library(); }
  void bind(std::vector<GradientBucket> buckets) override;

 private:
  // The argument of the driver's thread: this rank's part of a bucket, in pinned memory.
  struct Staged {
    const HierarchicalAllReduce* sums = nullptr;
    GradientBucket values;
  };

  static void sum_staged(void* staged);
  void sum(int first, int count) override;
  GradientBucket part(int bucket, int local_rank) const;
  // operation(part, its type, local rank to which it belongs), as one group of NCCL's.
  template <class Operation>
  void for_each_part(int first, int count, Operation operation);

  HostPlace place_;
  std::unique_ptr<HostSum> between_;  // over the ranks with the same local_rank
  std::function<void(const std::string& why)> failed_;
  Communicator communicator_;
  cuda::PinnedMemory pinned_;
  std::vector<Staged> staged_;  // by bucket; a graph holds their addresses
};

HierarchicalAllReduce::HierarchicalAllReduce(const JoinRequest& request)
    : GpuAllReduce(request),
      place_(request.place),
      between_(request.world.host_sum(place_.local_rank)),
      failed_(request.failed),
      communicator_(join_group(request.group, place_.local_rank, place_.local_ranks)) {}

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
    staged_.push_back({this, part(static_cast<int>(i), place_.local_rank)});
    offsets.push_back(bytes);
    bytes += round_up(staged_.back().values.bytes(), alignment);
  }
  pinned_.reset();
  pinned_ = cuda::allocate_pinned(std::max(bytes, alignment));
  for (size_t i = 0; i < staged_.size(); ++i) {
    staged_[i].values.data = static_cast<char*>(pinned_.get()) + offsets[i];
  }
}

// The driver calls this between two operations of the stream: nothing of CUDA may be called in it,
// nothing thrown out of it.
void HierarchicalAllReduce::sum_staged(void* staged) {
  const Staged& task = *static_cast<const Staged*>(staged);
  try {
    task.sums->between_->sum(task.values);
  } catch (const std::exception& error) {
    task.sums->failed_(error.what());
  }
}

template <class Operation>
void HierarchicalAllReduce::for_each_part(int first, int count, Operation operation) {
  NM_CALL(ncclGroupStart());
  for (int bucket = first; bucket < first + count; ++bucket) {
    for (int owner = 0; owner < place_.local_ranks; ++owner) {
      const GradientBucket values = part(bucket, owner);
      NM_CALL(operation(values, nccl_type(values.type), owner));
    }
  }
  NM_CALL(ncclGroupEnd());
}

void HierarchicalAllReduce::sum(int first, int count) {
  for_each_part(first, count, [&](const GradientBucket& values, ncclDataType_t type, int owner) {
    return ncclReduce(values.data, values.data, values.elements, type, ncclSum, owner,
                      communicator_.get(), stream());
  });
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
  for_each_part(first, count, [&](const GradientBucket& values, ncclDataType_t type, int owner) {
    return ncclBroadcast(values.data, values.data, values.elements, type, owner,
                         communicator_.get(), stream());
  });
}

}  // namespace
}  // namespace nearmetal

NM_EXPORT nearmetal::AllReduce* nearmetal_join_nccl(const nearmetal::JoinRequest& request) {
  return new nearmetal::NcclAllReduce(request);
}

NM_EXPORT nearmetal::AllReduce* nearmetal_join_hierarchical(const nearmetal::JoinRequest& request) {
  return new nearmetal::HierarchicalAllReduce(request);
}
