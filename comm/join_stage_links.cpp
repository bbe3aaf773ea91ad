#include "comm/join_stage_links.h"

#include "models/load_module.h"

namespace nearmetal {

std::unique_ptr<StageLinks> join_stage_links(bool on_gpus, const JoinRequest& request,
                                             std::span<const StageGroups> groups) {
  void* entry = on_gpus ? load_module("nccl", "NCCL module", stage_links_entry_name)
                        : load_module("mpi", "MPI module", stage_links_entry_name, true);
  return std::unique_ptr<StageLinks>(reinterpret_cast<StageLinksEntry>(entry)(request, groups));
}

}  // namespace nearmetal
