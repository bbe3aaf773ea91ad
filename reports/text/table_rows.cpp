#include "reports/text/table_rows.h"

#include <algorithm>

namespace nearmetal {
namespace {

std::string padded(const std::string& text, size_t width, bool right_aligned) {
  const std::string space(width - std::min(width, width_of(text)), ' ');
  return right_aligned ? space + text : text + space;
}

}  // namespace

TableRows::TableRows(std::ostream& out, const TextTable& table)
    : out_(out), columns_(table.columns), fit_(fit(table, column_limit(out))) {}

void TableRows::print_titles() const {
  if (fit_.too_wide) return;
  std::vector<std::string> titles;
  for (const TextTable::Column& column : columns_) titles.push_back(column.title);
  print_row(titles, nullptr);
}

void TableRows::print(const std::vector<std::string>& cells, const char* last_style) const {
  fit_.too_wide ? print_list(cells, last_style) : print_row(cells, last_style);
}

// Room is not what a list lacks: it has the columns that a table can do without, too.
void TableRows::print_list(const std::vector<std::string>& cells, const char* last_style) const {
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0 && (cells[i].empty() || cells[i] == "-")) continue;
    const bool styled = last_style != nullptr && i + 1 == cells.size();
    if (styled) out_ << last_style;
    print_line(out_, columns_[i].title + ": " + cells[i], i == 0 ? "" : "  ");
    if (styled) out_ << "\033[0m";
  }
}

void TableRows::print_row(const std::vector<std::string>& cells, const char* last_style) const {
  std::vector<std::vector<std::string>> wrapped;
  size_t height = 0;
  for (size_t i = 0; i < fit_.columns.size(); ++i) {
    const std::string cell = printable(cells[fit_.columns[i]]);
    wrapped.push_back(column_limit(out_) == 0 ? std::vector{cell}
                                              : wrap_cell(cell, fit_.widths[i]));
    height = std::max(height, wrapped.back().size());
  }
  for (size_t line = 0; line < height; ++line) {
    std::vector<std::string> parts;
    for (const auto& cell : wrapped) parts.push_back(line < cell.size() ? cell[line] : "");
    print_line_of_row(parts, last_style);
  }
}

void TableRows::print_line_of_row(const std::vector<std::string>& parts,
                                  const char* last_style) const {
  const auto right_aligned = [&](size_t i) { return columns_[fit_.columns[i]].right_aligned; };
  const size_t last = parts.size() - 1;
  for (size_t i = 0; i < last; ++i) {
    out_ << padded(parts[i], fit_.widths[i], right_aligned(i)) << "  ";
  }
  const bool right = right_aligned(last);
  const std::string text = padded(parts[last], right ? fit_.widths[last] : 0, right);
  if (last_style == nullptr) {
    out_ << text << '\n';
  } else {
    out_ << last_style << text << "\033[0m\n";
  }
}

}  // namespace nearmetal
