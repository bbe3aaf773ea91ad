// Horizontal bars with whiskers, as data and script of a chart.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reports/document/types.h"
#include "reports/formats/charts/chart.h"
#include "reports/statistics/inference.h"

namespace nearmetal {

struct Bar {
  std::string label;
  size_t row = 0;
  size_t side = 0;
  Kind kind = Kind::measured;
  double value = 0;
  Maybe<Interval> whisker;
  std::vector<double> circles;
};

struct Bars {
  std::vector<std::string> rows{};
  std::vector<std::string> sides{};
  std::string axis{};            // title of the values
  std::optional<double> line{};  // a value to be marked
  std::vector<Bar> bars{};
};

std::string csv_of(const Bars& bars);
std::string script_of(const Bars& bars);

}  // namespace nearmetal
