// The values of a field or a setting that are allowed.
#pragma once

#include <cstddef>
#include <limits>

#include "models/names.h"

namespace nearmetal {

struct Range {
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool above_minimum = false;  // the minimum itself is not allowed
};
constexpr Range at_least(double minimum) { return {.minimum = minimum}; }
constexpr Range above(double minimum) { return {.minimum = minimum, .above_minimum = true}; }
constexpr Range within(double minimum, double maximum) { return {minimum, maximum}; }
inline constexpr Range any_number{};

/// The allowed names of an enum: all, or all but one.
struct Names {
  size_t without = std::numeric_limits<size_t>::max();
};
template <Named E>
constexpr Names without(E value) {
  return {static_cast<size_t>(value)};
}

}  // namespace nearmetal
