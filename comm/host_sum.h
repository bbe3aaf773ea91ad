// Sums in the memory of hosts, for what sums in other memory first.
#pragma once

#include <string>

#include "models/all_reduce.h"

namespace nearmetal {

/// Over some of the ranks of a job.
class HostSum {
 public:
  virtual ~HostSum() = default;
  /// "Open MPI v4.1.4".
  virtual std::string library() const = 0;
  /// Each element of `values`, which lie in this host's memory, becomes its sum over the ranks;
  /// they all call it, in the same order. Waits for them, on whatever thread, one at a time. Throws
  /// std::runtime_error, std::invalid_argument for 2^31 elements or more.
  virtual void sum(const GradientBucket& values) = 0;
};

}  // namespace nearmetal
