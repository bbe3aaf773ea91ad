// SHA-256 (FIPS 180-4), to name configurations and sets of plans.
#pragma once

#include <string>
#include <string_view>

namespace nearmetal {

/// 64 lower-case hexadecimal digits.
std::string sha256(std::string_view data);

}  // namespace nearmetal
