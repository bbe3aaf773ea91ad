// The kernels that the ranks of a job take, and the messages where their memory is short.
#pragma once

#include <functional>
#include <vector>

#include "bench/run/rank_run.h"

namespace nearmetal {

/// Does `work`. What OutOfMemory says is made readable, and a sweep is told by a code, as the
/// report has the text alone.
void with_memory_hint(const RankTask& task, const std::function<void()>& work);

/// The choices of all ranks, each operation once, as the first rank chose it; collective.
std::vector<KernelChoice> union_of_ranks(World& world, const std::vector<KernelChoice>& own);

/// GPUs are tuned on the ranks of the first replica; all take what they chose, since plans are part
/// of the work. Collective.
KernelSource kernels_of_all(const RankTask& task);

}  // namespace nearmetal
