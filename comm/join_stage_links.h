// Joins the stages of a pipeline to their neighbours, over MPI or NCCL.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "comm/join_all_reduce.h"
#include "models/stage_links.h"

namespace nearmetal {

/// NCCL's names of the groups that stages use: each stage but the last makes two for its boundary
/// with the next, one each way, so that values never wait behind gradients; the first stage makes
/// one of all for sums. In the order of the stages, as all of them gathered it.
struct StageGroups {
  std::string values, gradients, sums;
};

/// Collective over the stages of one replica: `request.world` has them in their order.
/// `groups`: of each stage, empty on CPUs. Throws NotSupported where the module was not built,
/// std::runtime_error for errors of library and device.
std::unique_ptr<StageLinks> join_stage_links(bool on_gpus, const JoinRequest& request,
                                             std::span<const StageGroups> groups);

/// The function that the modules of MPI and NCCL export.
using StageLinksEntry = StageLinks* (*)(const JoinRequest& request,
                                        std::span<const StageGroups> groups);
inline constexpr const char* stage_links_entry_name = "nearmetal_join_stage_links";

}  // namespace nearmetal
