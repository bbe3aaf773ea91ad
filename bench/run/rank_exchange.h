// How one rank meets the others that train the same network.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "bench/run/rank_run.h"
#include "models/program.h"

namespace nearmetal {

/// Ends the job: the other ranks wait for this one and would do so for ever.
void abort_job(const RankTask& task, const std::string& what, const std::string& why);

struct Exchange {
  std::unique_ptr<AllReduce> all_reduce;  // null where each rank trains for itself
  const Collective* collective = nullptr;
};

/// What the configuration asks for; collective. A hierarchical one over a single host is NCCL
/// alone. `task` must outlive the result.
Exchange join_exchange(const RankTask& task);

/// Puts it into the program's step, in buckets of the size that was asked for or that is fastest.
Communication prepare_exchange(const RankTask& task, Program& program, const Exchange& exchange,
                               std::span<const float> parameters);

}  // namespace nearmetal
