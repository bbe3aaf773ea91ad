// Makes what sums the gradients of a rank with those of the others.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/host_place.h"
#include "comm/world.h"
#include "models/program.h"
#include "reports/document/collectives.h"

namespace nearmetal {

/// What a rank brings to join the others.
struct JoinRequest {
  World& world;  // outlives what is made
  HostPlace place{};
  int gpu = 0;          // index among the visible GPUs, one for each rank
  std::string group{};  // NCCL's name of the ranks over which it sums
  /// Called where sums between hosts fail, on a thread of the driver and with other ranks waiting:
  /// must end the job.
  std::function<void(const std::string& why)> failed{};
};

/// Collective. Throws NotSupported where the module was not built, or its library is not on this
/// machine, std::runtime_error for errors of library and device.
std::unique_ptr<AllReduce> join_all_reduce(const Collective& collective,
                                           const JoinRequest& request);

/// What the module of MPI or of NCCL exports for each row of `collectives`, as
/// nearmetal_join_<name>.
using JoinEntry = AllReduce* (*)(const JoinRequest& request);

}  // namespace nearmetal
