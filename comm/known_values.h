// Values by which an allreduce is tested, whose sums are exact in every type and any order, and
// those by which the boundary between two stages is.
#pragma once

#include <cstdint>
#include <string>

namespace nearmetal {

struct GradientBucket;  // models/program.h

/// The values that rank `rank` of `ranks` puts into `bucket`, as the bytes of its elements: whole
/// numbers whose sums stay below 256 in bf16, 2048 in fp16 and 2^20 in fp32, and need those bits,
/// so that a sum of fewer is seen. At each place at most 128 ranks give something, in turns. The
/// pattern has a prime length, so that values in a wrong place give a wrong sum.
std::string known_values(const GradientBucket& bucket, int rank, int ranks);

/// The sums that the bucket must hold afterwards.
std::string known_sums(const GradientBucket& bucket, int ranks);

/// Bytes after which the values begin again: a prime, so that no power of two hides a shift.
inline constexpr int64_t known_boundary_period = 251;

/// The bytes that stage `from` sends in turn `run`: they differ from stage to stage, from turn to
/// turn and from place to place.
std::string known_boundary(int64_t bytes, int from, int run);

}  // namespace nearmetal
