// Fixed pieces of work by several threads at once: what CPUs do not give them shows.
#pragma once

#include <vector>

namespace nearmetal {

/// Each thread does the same piece of work, about a tenth of a millisecond of dependent
/// multiplications, again and again for `seconds`; all start together. Returns the seconds of every
/// piece, by thread. A hypervisor or scheduler that gives a CPU to others makes few pieces much
/// longer; a slow clock makes all of them so.
std::vector<std::vector<double>> time_quanta(int threads, double seconds);

}  // namespace nearmetal
