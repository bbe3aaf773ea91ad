// The measurements of --attribute right after the window: the machine, and what a step asks of it.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/run/rank_run.h"

namespace nearmetal {

/// A chain in which every step needs the one before, so that no processor does it side by side.
inline uint64_t multiply_in_a_chain(uint64_t value, int64_t length) {
  for (int64_t i = 0; i < length; ++i) value = value * 6364136223846793005U + 1442695040888963407U;
  return value;
}

/// Each thread does the same piece of work, about a tenth of a millisecond of dependent
/// multiplications, again and again for `seconds`; all start together. Returns the seconds of every
/// piece, by thread. A hypervisor or scheduler that gives a CPU to others makes few pieces much
/// longer; a slow clock makes all of them so.
std::vector<std::vector<double>> time_quanta(int threads, double seconds);

/// About two seconds of probes, on all ranks at once, and the floors of the kernels of `program`.
/// Where a probe cannot be taken, its times are unknown with the reason. Collective; the program
/// trains a few steps more.
RankProbes time_machine(const RankTask& task, Program& program);

}  // namespace nearmetal
