// What jobs that share a GPU have of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reports/compare/run_set.h"

namespace nearmetal {

/// What a job has of its GPU, at most: with MIG or a vGPU that device.
struct GivenShare {
  Maybe<int64_t> threads_percent = Unknown{"no limit"};  // of the multiprocessors
  Maybe<int64_t> multiprocessors{};
  Maybe<int64_t> memory_bytes{};

  bool operator==(const GivenShare&) const = default;
};

/// Null: the rank computes on CPUs, or the report does not tell.
const Gpu* gpu_of(const RunSet& set, const Rank& rank);

/// By job, of its first rank; empty: on CPUs. `run`: a complete one of the arm.
std::vector<GivenShare> given_to(const RunSet& set, const ArmShare& share, const Run& run);

/// "16 SMs, 18.9 GB"; of unequal shares "2 x 16 SMs, 18.9 GB; 60 SMs, 75.9 GB".
std::string given_text(const std::vector<GivenShare>& given);

/// What the figures do not say of arms on vGPUs: profile, licence and scheduler.
std::vector<std::string> share_remarks(const RunSet& set);

}  // namespace nearmetal
