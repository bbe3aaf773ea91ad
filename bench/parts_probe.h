// Whether processes can have multiprocessors of a GPU of their own.
#pragma once

#include <atomic>
#include <string>
#include <vector>

namespace nearmetal {

struct TimeLimits;

/// How often a second the same work is done, that takes as long as there are few multiprocessors.
struct PartRates {
  double whole = 0;              // by one process on the whole GPU
  double alone = 0;              // by one on a half
  std::vector<double> together;  // by two at once, each on a half
};

/// Empty where a half is kept to and both run at the same time, else what is wrong.
std::string verdict_of_parts(const PartRates& rates);

/// Tries it on a GPU of this machine, by its index, through an MPS daemon; some seconds. Empty, or
/// why not.
std::string no_parts_reason(int64_t gpu, const TimeLimits& limits, const std::atomic<int>& stop);

}  // namespace nearmetal
