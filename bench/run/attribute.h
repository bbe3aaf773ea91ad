// What --attribute measures right after the window: the machine, and what a step asks of it.
#pragma once

#include "bench/run/rank_run.h"

namespace nearmetal {

/// About two seconds of probes, on all ranks at once, and the floors of the kernels of `program`.
/// Where a probe cannot be taken, its times are unknown with the reason. Collective; the program
/// trains a few steps more.
RankProbes time_machine(const RankTask& task, Program& program);

}  // namespace nearmetal
