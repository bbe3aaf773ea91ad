// Values by which the boundary between two stages is tested.
#pragma once

#include <cstdint>
#include <string>

namespace nearmetal {

/// Bytes after which the values begin again: a prime, so that no power of two hides a shift.
inline constexpr int64_t known_boundary_period = 251;

/// The bytes that stage `from` sends in turn `run`: they differ from stage to stage, from turn to
/// turn and from place to place.
std::string known_boundary(int64_t bytes, int from, int run);

}  // namespace nearmetal
