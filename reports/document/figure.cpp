#include "reports/document/figure.h"

#include <cmath>
#include <limits>
#include <utility>

namespace nearmetal {
namespace {

// In times of the limit, and by itself, as anything is infinitely far above 0.
std::pair<double, double> excess_of(const Figure& figure) {
  const double size = std::abs(figure.value);
  if (size == 0) return {0, 0};
  return {figure.limit > 0 ? size / figure.limit : std::numeric_limits<double>::infinity(), size};
}

}  // namespace

bool is_worse(const Figure& a, const Figure& b) { return excess_of(a) > excess_of(b); }

}  // namespace nearmetal
