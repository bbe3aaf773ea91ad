#include "reports/text/fit_table.h"

#include <algorithm>
#include <ios>
#include <iterator>
#include <numeric>
#include <sstream>

namespace nearmetal {
namespace {

constexpr size_t fewest_columns = 20;
constexpr size_t gap = 2;
constexpr size_t shortest_part = 12;  // of a word that has to be broken

// Where a stream keeps its limit.
int place_of_limit() {
  static const int place = std::ios_base::xalloc();
  return place;
}

size_t longest_word(const std::string& text) {
  std::istringstream words(text);
  size_t longest = 0;
  for (std::string word; words >> word;) longest = std::max(longest, width_of(word));
  return longest;
}

// The largest of its title and cells.
size_t largest_of_column(const TextTable& table, size_t column,
                         size_t (*size)(const std::string& text)) {
  size_t largest = size(table.columns[column].title);
  for (const auto& row : table.rows) largest = std::max(largest, size(printable(row[column])));
  return largest;
}

size_t all_of(const std::vector<size_t>& widths) {
  return std::accumulate(widths.begin(), widths.end(), gap * (widths.size() - 1));
}

void leave_out_dispensable(const TextTable& table, size_t columns, TableFit& fit) {
  for (size_t i = fit.columns.size(); i-- > 0 && all_of(fit.widths) > columns;) {
    if (!table.columns[fit.columns[i]].dispensable) continue;
    fit.columns.erase(std::next(fit.columns.begin(), static_cast<ptrdiff_t>(i)));
    fit.widths.erase(std::next(fit.widths.begin(), static_cast<ptrdiff_t>(i)));
  }
}

// The widest column that is wider than its least loses one, until the table fits or none can.
void narrow(const std::vector<size_t>& least, size_t columns, std::vector<size_t>& widths) {
  while (all_of(widths) > columns) {
    size_t widest = widths.size();
    for (size_t i = 0; i < widths.size(); ++i) {
      const bool can = widths[i] > least[i];
      if (can && (widest == widths.size() || widths[i] > widths[widest])) widest = i;
    }
    if (widest == widths.size()) return;
    --widths[widest];
  }
}

// The beginning of a word that is longer than its column, up to a sign between its parts if it can.
std::string part_of_word(const std::string& word, size_t width) {
  const std::string part = cut(word, width);
  const size_t sign = part.find_last_of("_/-.");
  return sign == part.npos ? part : part.substr(0, sign + 1);
}

}  // namespace

void limit_columns(std::ostream& out, size_t columns) {
  out.iword(place_of_limit()) = static_cast<long>(std::max(columns, fewest_columns));
}

size_t column_limit(std::ostream& out) { return out.iword(place_of_limit()); }

void take_column_limit(std::ostream& text, std::ostream& out) {
  text.iword(place_of_limit()) = out.iword(place_of_limit());
}

TableFit fit(const TextTable& table, size_t columns) {
  TableFit fit;
  for (size_t column = 0; column < table.columns.size(); ++column) {
    fit.columns.push_back(column);
    fit.widths.push_back(largest_of_column(table, column, width_of));
  }
  if (columns == 0) return fit;
  leave_out_dispensable(table, columns, fit);
  std::vector<size_t> least;
  for (const size_t column : fit.columns) {
    least.push_back(largest_of_column(table, column, longest_word));
  }
  narrow(least, columns, fit.widths);
  for (size_t& width : least) width = std::min(width, shortest_part);
  narrow(least, columns, fit.widths);
  fit.too_wide = all_of(fit.widths) > columns;
  return fit;
}

std::vector<std::string> wrap_cell(const std::string& cell, size_t width) {
  if (width_of(cell) <= width) return {cell};
  std::vector<std::string> lines;
  std::istringstream words(cell);
  for (std::string word; words >> word;) {
    while (width_of(word) > width) {
      lines.push_back(part_of_word(word, width));
      word.erase(0, lines.back().size());
    }
    if (!lines.empty() && width_of(lines.back()) + 1 + width_of(word) <= width) {
      lines.back() += " " + word;
    } else {
      lines.push_back(word);
    }
  }
  return lines;
}

}  // namespace nearmetal
