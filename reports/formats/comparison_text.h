// A comparison for people, on a terminal or as Markdown, and as a JSON document.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "reports/compare/compare.h"
#include "reports/compare/gate.h"
#include "reports/text/text_table.h"

namespace nearmetal {

inline constexpr const char* key_differences_title = "What must agree and differs, the worst first";

/// Layers, what is unexplained last; as remarks the model, and known causes, most likely first. The
/// sides are called as the comparison calls them.
TitledTable text_of(const Explanation& explanation, const CompareOptions& options);

/// All that is printed of a comparison, in the order of a page. Tables without content have no
/// rows.
struct ComparisonText {
  std::vector<std::string> work;       // of each side what was measured, where and when
  std::vector<std::string> headlines;  // the answer
  TextTable key_differences;
  TextTable rows;  // geometric means last
  std::string rule;
  std::vector<TitledTable> explanations;
  TextTable environments;
  std::vector<std::string> remarks;  // footnotes of the rows, notes, published figures
};

ComparisonText text_of(const Comparison& comparison);

/// Prints what was measured, the answer, differences of keys, the table with its footnotes, and in
/// the VM form what else differs.
void print_comparison(std::ostream& out, const Comparison& comparison, bool colour);
void print_comparison_markdown(std::ostream& out, const Comparison& comparison);

/// The JSON Schema (2020-12) of what to_json() writes, as reports/schema/comparison.schema.json.
std::string comparison_schema();

std::string to_json(const Comparison& comparison, const std::optional<GateResult>& gate,
                    ExitCode exit_code);

}  // namespace nearmetal
