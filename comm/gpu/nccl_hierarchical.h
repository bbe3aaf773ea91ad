// Sums gradients in the memory of GPUs: inside each host by NCCL, between hosts in their memory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/gpu/nccl_all_reduce.h"
#include "comm/host_place.h"
#include "comm/nccl_library.h"

namespace nearmetal {

/// A bucket is cut into as many parts as a host has ranks. NCCL leaves part i of the sums of a host
/// with its rank i, which copies it into pinned memory, sums it with the ranks i of the other hosts
/// on a thread of the driver, and copies it back; NCCL spreads the parts over the host. Each host
/// takes part with every bucket once, its ranks side by side. For hosts whose NICs do not reach GPU
/// memory.
class HierarchicalAllReduce : public GpuAllReduce {
 public:
  /// Waits for the ranks of this host, which are the group.
  HierarchicalAllReduce(const std::string& group, const HostPlace& place, int gpu,
                        BetweenHosts between);

  std::string library() const override { return nccl_version() + " + " + between_.sum->library(); }
  void bind(std::vector<GradientBucket> buckets) override;

 private:
  // What the driver's thread is given: this rank's part of a bucket, in pinned memory.
  struct Staged {
    const BetweenHosts* between = nullptr;
    GradientBucket values;
  };

  static void sum_staged(void* staged);
  void sum(int first, int count) override;
  GradientBucket part(int bucket, int local_rank) const;
  void reduce_parts(int first, int count);
  void spread_parts(int first, int count);

  HostPlace place_;
  BetweenHosts between_;
  Communicator communicator_;
  cuda::PinnedMemory pinned_;
  std::vector<Staged> staged_;  // by bucket; a graph holds their addresses
};

}  // namespace nearmetal
