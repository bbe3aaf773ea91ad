// The entry of libnearmetal_nccl.so.
#include "comm/nccl_all_reduce.h"
#include "comm/nccl_library.h"
#include "comm/nccl_probes.h"

namespace nearmetal {
namespace {

class NcclLibrary : public Nccl {
 public:
  std::string version() const override { return nccl_version(); }

  std::string new_group() override {
    ncclUniqueId id{};
    require_ok(ncclGetUniqueId(&id), "ncclGetUniqueId");
    return {id.internal, sizeof(id.internal)};
  }

  std::unique_ptr<AllReduce> join(const std::string& group, int rank, int ranks, int gpu) override {
    return std::make_unique<NcclAllReduce>(group, rank, ranks, gpu);
  }

  std::vector<Probe> probes(const std::string& group, int rank, int ranks, int gpu) override {
    return nccl_probes(group, rank, ranks, gpu);
  }
};

}  // namespace
}  // namespace nearmetal

extern "C" __attribute__((visibility("default"))) nearmetal::Nccl* nearmetal_nccl() {
  static nearmetal::NcclLibrary library;
  return &library;
}
