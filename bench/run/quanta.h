// Fixed pieces of work on CPUs: what those do not give to a thread shows.
#pragma once

#include <cstdint>
#include <vector>

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

}  // namespace nearmetal
