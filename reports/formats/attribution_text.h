// Where a difference comes from, for people. Computes nothing but units.
#pragma once

#include <string>
#include <vector>

#include "reports/compare/compare.h"
#include "reports/text/text_table.h"

namespace nearmetal {

struct ExplanationText {
  std::string title;
  TextTable layers;                  // what is unexplained last
  std::vector<std::string> remarks;  // the model; known causes, most likely first
};

/// The sides are called as the comparison calls them.
ExplanationText text_of(const Explanation& explanation, const CompareOptions& options);

}  // namespace nearmetal
