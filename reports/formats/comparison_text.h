// A comparison for people: on a terminal, or as Markdown. Computes nothing but units.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "reports/compare/compare.h"
#include "reports/text/text_table.h"

namespace nearmetal {

inline constexpr const char* key_differences_title = "What must agree and differs, the worst first";

struct ExplanationText {
  std::string title;
  TextTable layers;                  // what is unexplained last
  std::vector<std::string> remarks;  // the model; known causes, most likely first
};

/// The sides are called as the comparison calls them.
ExplanationText text_of(const Explanation& explanation, const CompareOptions& options);

/// All that is printed of a comparison, in the order of a page. Tables without content have no
/// rows.
struct ComparisonText {
  TextTable key_differences;
  TextTable rows;  // worst first, geometric means last
  std::string rule;
  std::vector<ExplanationText> explanations;
  TextTable environments;
  std::vector<std::string> remarks;  // footnotes of the rows, notes, published figures
};

ComparisonText text_of(const Comparison& comparison);

/// Differences of keys, the table worst first with its footnotes, in the VM form
/// what else differs.
void print_comparison(std::ostream& out, const Comparison& comparison, bool colour);
void print_comparison_markdown(std::ostream& out, const Comparison& comparison);

/// "1 slower, 2 equivalent", of all rows.
std::string verdict_counts(const Comparison& comparison);

}  // namespace nearmetal
