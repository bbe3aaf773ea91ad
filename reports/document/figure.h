// A figure by which something is judged.
#pragma once

#include <array>
#include <cmath>
#include <utility>

namespace nearmetal {

enum class FigureUnit { share, count, cpus, seconds, times };
constexpr auto names_of(FigureUnit) {
  return std::array{"share", "count", "cpus", "seconds", "times"};
}

struct Figure {
  double value = 0;
  double limit = 0;  // the largest that is acceptable, whatever its sign
  FigureUnit unit = FigureUnit::share;

  bool operator==(const Figure&) const = default;
};

/// Whether `a` is further above its limit than `b` above its own, each in times of it; above a
/// limit of 0 anything is infinitely far.
inline bool is_worse(const Figure& a, const Figure& b) {
  const auto excess = [](const Figure& figure) {
    const double size = std::abs(figure.value);
    return std::pair(size > 0 ? size / figure.limit : 0, size);
  };
  return excess(a) > excess(b);
}

}  // namespace nearmetal
