// How a table gets into the width of a terminal.
#pragma once

#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

#include "reports/text/text_table.h"

namespace nearmetal {

/// From now on tables and wrapped lines that are printed to `out` take so many columns at most,
/// as far as their words let them; 20 where it is less.
void limit_columns(std::ostream& out, size_t columns);

/// The limit that limit_columns() set; without one 0.
size_t column_limit(std::ostream& out);

/// For text that `out` gets later.
void take_column_limit(std::ostream& text, std::ostream& out);

struct TableFit {
  std::vector<size_t> columns;  // shown ones, by index
  std::vector<size_t> widths;   // of those
  bool too_wide = false;        // in spite of all that
};

/// Into so many columns (0: any): what the table can do without is left out, from the right, then
/// the widest columns become narrower, but none than its longest word; where that is not enough,
/// long words are broken, too.
TableFit fit(const TextTable& table, size_t columns);

/// The words of a cell on as many lines as it takes, at least one.
std::vector<std::string> wrap_cell(const std::string& cell, size_t width);

}  // namespace nearmetal
