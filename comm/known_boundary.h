// Values by which the boundary between two stages is tested.
#pragma once

#include <cstdint>
#include <string>

namespace nearmetal {

/// The bytes that stage `from` sends in turn `run`: they differ from stage to stage, from turn to
/// turn and from place to place, with a pattern of prime length.
std::string known_boundary(int64_t bytes, int from, int run);

}  // namespace nearmetal
