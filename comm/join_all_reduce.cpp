#include "comm/join_all_reduce.h"

#include "models/load_module.h"

namespace nearmetal {

std::unique_ptr<AllReduce> join_all_reduce(const Collective& collective,
                                           const JoinRequest& request) {
  const std::string name = std::string("nearmetal_join_") + collective.name;
  void* entry = collective.on_gpus ? load_module("nccl", "NCCL module", name.c_str())
                                   : load_module("mpi", "MPI module", name.c_str(), true);
  return std::unique_ptr<AllReduce>(reinterpret_cast<JoinEntry>(entry)(request));
}

Nccl& load_nccl() {
  static Nccl& nccl =
      *reinterpret_cast<NcclEntry>(load_module("nccl", "NCCL module", nccl_entry_name))();
  return nccl;
}

}  // namespace nearmetal
