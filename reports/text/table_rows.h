// The rows of a table, printed one by one.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "reports/text/fit_table.h"
#include "reports/text/text_table.h"

namespace nearmetal {

/// For rows that are not all known at once. Columns are as wide as those of a table need, or as
/// limit_columns() lets them be, with words of a cell on further lines; where even that is too
/// wide, each row is a list of its cells, each behind the title of its column. Control characters
/// are shown as '?'.
class TableRows {
 public:
  TableRows(std::ostream& out, const TextTable& table);

  void print_titles() const;
  /// `last_style`: an escape sequence for the last cell, or null.
  void print(const std::vector<std::string>& cells, const char* last_style = nullptr) const;

 private:
  void print_list(const std::vector<std::string>& cells, const char* last_style) const;
  void print_row(const std::vector<std::string>& cells, const char* last_style) const;
  void print_line_of_row(const std::vector<std::string>& parts, const char* last_style) const;

  std::ostream& out_;
  std::vector<TextTable::Column> columns_;
  TableFit fit_;
};

}  // namespace nearmetal
