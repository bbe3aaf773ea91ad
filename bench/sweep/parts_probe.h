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

struct PartsVerdict {
  std::string reason{};   // why there are none; empty: they can be had
  std::string failure{};  // of the try itself, which then says nothing; empty: none
};

/// Tries on a GPU of this machine, by its index, through an MPS daemon, whether two halves run at
/// once; some seconds.
PartsVerdict try_halves(int64_t gpu, const TimeLimits& limits, const std::atomic<int>& stop);

/// The same, whether it can be split into parts of these percentages.
PartsVerdict try_split(int64_t gpu, const std::vector<int64_t>& percents, const TimeLimits& limits,
                       const std::atomic<int>& stop);

}  // namespace nearmetal
