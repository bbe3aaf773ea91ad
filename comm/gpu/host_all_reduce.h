// Sums gradients in the memory of GPUs by way of their host's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/gpu/gpu_all_reduce.h"
#include "comm/host_place.h"
#include "comm/shared_memory.h"
#include "comm/staged_sum.h"
#include "comm/world.h"

namespace nearmetal {

/// Over GPUs of one host, without NCCL: copy engines move gradients through pinned memory that the
/// ranks share, and streams wait for one another by values in it. Multiprocessors only add, a small
/// part of the time, and NVLink stays asleep, whose power a GPU at its limit takes off its clock.
class HostAllReduce : public GpuAllReduce, private StagedOperations {
 public:
  /// Of all ranks, two to 128 on one host; `world` must outlive this.
  HostAllReduce(World& world, int gpu);

  /// "copy engines, driver of CUDA 13.0".
  std::string library() const override;
  /// Collective.
  void bind(std::vector<GradientBucket> buckets) override;

 private:
  struct Place {
    int64_t in_rank = 0;    // bytes from the beginning of each rank's gradients, and of the sums
    Part own;               // what this rank sums
    int64_t row_bytes = 0;  // of that part as it comes from each rank
  };

  void share_memory();
  void sum(int first, int count) override { sum_staged(first, count, *this); }
  void share_gradients(int bucket) override;
  void fetch_gradients(int bucket) override;
  void add(int bucket) override;
  void share_sums(int bucket) override;
  void fetch_sums(int bucket) override;
  void tell(Stage stage, int first) override;
  void await(Stage stage, int first) override;

  std::byte* gradients_of(int rank, int bucket) const;
  std::byte* sums_of(int bucket) const;
  uint64_t flag(Stage stage, int bucket, int to, int from) const;  // as the GPU addresses it
  bool leaves_own_part_out(int bucket) const;
  std::vector<Part> parts_to_move(int bucket) const;
  // Between a bucket on the GPU and its like in shared memory, which begins at `staged`.
  void copy(int bucket, const Part& part, std::byte* staged, cudaMemcpyKind kind);

  World& world_;
  std::vector<Place> places_;    // by bucket
  int64_t gradients_begin_ = 0;  // of rank 0 in the shared memory, behind the flags
  int64_t rank_bytes_ = 0;       // of the gradients of each rank, and of the sums
  std::unique_ptr<SharedMemory> shared_;
  cuda::RegisteredMemory pinned_;  // the same memory, as the GPU may reach it
  uint64_t flags_ = 0;             // where it begins, as the GPU addresses it
  cuda::DeviceMemory rows_;        // of this rank's part of one bucket
};

}  // namespace nearmetal
