#include "base/text_table.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <ios>
#include <iterator>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace nearmetal {
namespace {

struct CodePoint {
  char32_t value = 0;  // of a byte that is no UTF-8: 0
  size_t bytes = 1;
};

CodePoint code_point_at(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  if (byte(0) < 0x80) return {byte(0), 1};
  const size_t bytes = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0xC0 || at + bytes > text.size()) return {};
  char32_t value = byte(0) & (0xFF >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3F);
  }
  constexpr std::array<char32_t, 5> least = {0, 0, 0x80, 0x800, 0x10000};  // else written too long
  return value < least.at(bytes) ? CodePoint{} : CodePoint{value, bytes};
}

// Not of control characters (C0, C1), those that turn the direction of text or break a line, and
// what XML 1.0 does not allow.
bool is_printable(char32_t c) {
  constexpr std::array<std::pair<char32_t, char32_t>, 9> others = {{{0x00, 0x1F},
                                                                    {0x7F, 0x9F},
                                                                    {0x61C, 0x61C},
                                                                    {0x200E, 0x200F},
                                                                    {0x2028, 0x202E},
                                                                    {0x2066, 0x2069},
                                                                    {0xD800, 0xDFFF},
                                                                    {0xFFFE, 0xFFFF},
                                                                    {0x110000, 0xFFFFFFFF}}};
  return std::ranges::none_of(
      others, [&](const auto& range) { return c >= range.first && c <= range.second; });
}

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool is_decimal(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_in_word(char c) { return is_letter(c) || is_decimal(c) || (c & 0x80) != 0; }

// Whether a log of CI could take what begins here for a command: GitHub, where it begins a line
// (::error::), or anywhere (##[error], as Azure's ##vso[...] and ##teamcity[...]). A table or a
// wrapped text can begin a line with any word.
bool begins_ci_command(std::string_view text, size_t at) {
  const std::string_view rest = text.substr(at);
  if (rest.starts_with("##")) {
    const auto end = std::find_if_not(rest.begin() + 2, rest.end(), is_letter);
    return end != rest.end() && *end == '[';
  }
  const bool in_name = at > 0 && (is_letter(text[at - 1]) || is_decimal(text[at - 1]));
  return !in_name && rest.starts_with("::") && rest.size() > 2 && is_letter(rest[2]) &&
         rest.find("::", 2) < rest.find('\n');
}

// The text with others in place of the characters that steer what shows it.
template <class Replacement>
std::string replaced(const std::string& text, const Replacement& replacement) {
  std::string shown;
  shown.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto [value, bytes] = code_point_at(text, at);
    const bool shows = is_printable(value) && !begins_ci_command(text, at);
    shows ? shown.append(text, at, bytes) : shown.append(replacement(value));
    at += bytes;
  }
  return shown;
}

// Whether it has parts of links, images, notes or what they refer to; brackets alone show as
// themselves.
bool has_parts_of_links(const std::string& text) {
  return std::ranges::any_of(std::array{"](", "][", "]:", "[^", "[ ]", "[x]", "[X]"},
                             [&](const char* part) { return text.find(part) != text.npos; });
}

// Behind digits that begin the text: an item of a list.
bool ends_item_number(const std::string& text, size_t at) {
  return at > 0 && text.find_first_not_of("0123456789") == at &&
         (at + 1 == text.size() || text[at + 1] == ' ');
}

// Whether GitHub's Markdown takes this character of a text, which stands on a line of its own or in
// a cell, for more than itself.
bool is_mark(const std::string& text, size_t at, bool links) {
  const char c = text[at];
  const char before = at > 0 ? text[at - 1] : ' ';
  const char after = at + 1 < text.size() ? text[at + 1] : '\0';
  const auto is_of = [](char one, std::string_view marks) { return marks.find(one) != marks.npos; };
  const bool in_word = is_in_word(before) && is_in_word(after);
  const bool begins_block =
      c == '>' || c == '#' || (is_of(c, "+-=") && (after == ' ' || after == c));
  return is_of(c, "\\`*~|$") || (at == 0 && begins_block) || (c == '_' && !in_word) ||
         (links && is_of(c, "[]")) || (is_of(c, ".)") && ends_item_number(text, at)) ||
         (c == '<' && (is_letter(after) || is_of(after, "/!?"))) ||
         (c == '&' && (is_letter(after) || after == '#') && text.find(';', at) != text.npos) ||
         (c == '@' && is_in_word(after)) || (c == '#' && is_decimal(after));
}

// Behind `lead`; lines that follow are indented.
void print_words(std::ostream& out, const std::string& lead, const std::string& text, size_t indent,
                 size_t most_columns) {
  out << lead;
  size_t columns = width_of(lead);
  bool begins = true;
  for (const std::string& word : words_in(text)) {
    const bool fits = begins || columns + 1 + width_of(word) <= most_columns;
    if (!begins) out << (fits ? " " : '\n' + std::string(indent, ' '));
    out << word;
    columns = (fits ? columns + (begins ? 0 : 1) : indent) + width_of(word);
    begins = false;
  }
  out << '\n';
}

constexpr size_t fewest_columns = 20;
constexpr size_t gap = 2;
constexpr size_t shortest_part = 12;  // of a word that has to be broken

int place_of_limit() {
  static const int place = std::ios_base::xalloc();
  return place;
}

size_t longest_word(const std::string& text) {
  size_t longest = 0;
  for (const std::string& word : words_in(text)) longest = std::max(longest, width_of(word));
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

std::string padded(const std::string& text, size_t width, bool right_aligned) {
  const std::string space(width - std::min(width, width_of(text)), ' ');
  return right_aligned ? space + text : text + space;
}

}  // namespace

std::string printable(const std::string& text) {
  return replaced(text, [](char32_t) { return std::string("?"); });
}

std::string html_escaped(const std::string& text) {
  std::string escaped = printable(text);
  for (const auto& [c, entity] : {std::pair("&", "&amp;"), std::pair("<", "&lt;"),
                                  std::pair(">", "&gt;"), std::pair("\"", "&quot;")}) {
    escaped = replaced(escaped, c, entity);
  }
  return escaped;
}

std::string csv_cell(const std::string& text) {
  return '"' + replaced(printable(text), "\"", "\"\"") + '"';
}

std::string printable_json(const std::string& json) {
  return replaced(json, [](char32_t c) {
    std::array<char, 8> escape{};
    std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(c));
    return c == '\n' ? "\n" : std::string(escape.data());
  });
}

// The number of characters, by the bytes that begin one in UTF-8.
size_t width_of(const std::string& text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; });
}

std::string cut(const std::string& text, size_t columns) {
  size_t end = 0;
  while (end < text.size() && columns-- > 0) end += code_point_at(text, end).bytes;
  return text.substr(0, end);
}

void limit_columns(std::ostream& out, size_t columns) {
  out.iword(place_of_limit()) = static_cast<long>(std::max(columns, fewest_columns));
}

size_t column_limit(std::ostream& out) { return out.iword(place_of_limit()); }

TableFit fit(const TextTable& table, size_t columns) {
  TableFit fit;
  for (size_t column = 0; column < table.columns.size(); ++column) {
    fit.columns.push_back(column);
    fit.widths.push_back(largest_of_column(table, column, width_of));
  }
  if (columns == 0) return fit;
  leave_out_dispensable(table, columns, fit);
  std::vector<size_t> least = transformed(
      fit.columns, [&](size_t column) { return largest_of_column(table, column, longest_word); });
  narrow(least, columns, fit.widths);
  for (size_t& width : least) width = std::min(width, shortest_part);
  narrow(least, columns, fit.widths);
  fit.too_wide = all_of(fit.widths) > columns;
  return fit;
}

void leave_out_empty_columns(TextTable& table) {
  for (size_t i = table.columns.size(); i-- > 1;) {
    const bool empty = std::ranges::all_of(
        table.rows, [&](const auto& row) { return row[i].empty() || row[i] == "-"; });
    if (!empty || table.rows.empty()) continue;
    const auto place = static_cast<std::ptrdiff_t>(i);
    table.columns.erase(table.columns.begin() + place);
    for (auto& row : table.rows) row.erase(row.begin() + place);
  }
}

std::vector<std::string> wrap_cell(const std::string& cell, size_t width) {
  if (width_of(cell) <= width) return {cell};
  std::vector<std::string> lines;
  for (std::string& word : words_in(cell)) {
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

TableRows::TableRows(std::ostream& out, const TextTable& table)
    : out_(out), columns_(table.columns), fit_(fit(table, column_limit(out))) {}

void TableRows::print_titles() const {
  if (fit_.too_wide) return;
  print_row(transformed(columns_, &TextTable::Column::title), nullptr);
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
  const bool styled = last_style != nullptr;
  out_ << (styled ? last_style : "") << text << (styled ? "\033[0m\n" : "\n");
}

void print_aligned(std::ostream& out, const TextTable& table,
                   const std::vector<const char*>& last_styles) {
  const TableRows rows(out, table);
  rows.print_titles();
  for (size_t i = 0; i < table.rows.size(); ++i) {
    rows.print(table.rows[i], last_styles.empty() ? nullptr : last_styles[i]);
  }
}

void print_wrapped(std::ostream& out, const std::string& line, int indent) {
  constexpr size_t usual_columns = 100;
  const size_t limit = column_limit(out);
  print_words(out, "", printable(line), indent,
              limit == 0 ? usual_columns : std::min(limit, usual_columns));
}

void print_line(std::ostream& out, const std::string& line, const std::string& lead) {
  const size_t limit = column_limit(out);
  const std::string text = printable(line);
  if (limit == 0 || width_of(lead + text) <= limit) {
    out << lead << text << '\n';
  } else {
    print_words(out, lead, text, std::max<size_t>(width_of(lead), 4), limit);
  }
}

std::string markdown_escaped(const std::string& text) {
  const std::string shown = printable(text);
  const bool links = has_parts_of_links(shown);
  std::string escaped;
  for (size_t at = 0; at < shown.size(); ++at) {
    const char c = shown[at];
    if (!is_mark(shown, at, links)) {
      escaped += c;
    } else if (c == '&' || c == '<' || c == '>') {
      escaped += c == '&' ? "&amp;" : c == '<' ? "&lt;" : "&gt;";
    } else {
      escaped += {'\\', c};
    }
  }
  return escaped;
}

void print_aligned(std::ostream& out, const TitledTable& titled, bool colour) {
  if (titled.titled) print_line(out, titled.title + ":");
  print_aligned(out, titled.table, colour ? titled.last_styles : std::vector<const char*>{});
  const TableFit shown = fit(titled.table, column_limit(out));
  std::vector<std::string> others;
  for (size_t i = 0; i < titled.table.columns.size() && !shown.too_wide; ++i) {
    const TextTable::Column& column = titled.table.columns[i];
    if (column.right_aligned) continue;  // p, of which the interval beside it tells more
    if (find_in(shown.columns, i) == nullptr) others.push_back(column.title);
  }
  if (!others.empty()) print_wrapped(out, "no room for: " + joined(others, "; "));
  if (!titled.legend.empty()) print_wrapped(out, titled.legend);
  for (const std::string& line : titled.remarks) print_wrapped(out, line);
}

void print_markdown(std::ostream& out, const TitledTable& titled) {
  if (titled.titled) out << markdown_escaped(titled.title) << ":\n\n";
  const auto print_line = [&](const std::vector<std::string>& cells) {
    for (const std::string& cell : cells) out << "| " << cell << ' ';
    out << "|\n";
  };
  const std::vector<TextTable::Column>& columns = titled.table.columns;
  print_line(transformed(columns, [](const auto& one) { return markdown_escaped(one.title); }));
  print_line(transformed(
      columns, [](const auto& one) { return std::string(one.right_aligned ? "---:" : ":---"); }));
  for (const auto& row : titled.table.rows) print_line(transformed(row, markdown_escaped));
  out << '\n';
  if (!titled.legend.empty()) out << markdown_escaped(titled.legend) << "\n\n";
  for (const std::string& line : titled.remarks) out << "- " << markdown_escaped(line) << '\n';
  if (!titled.remarks.empty()) out << '\n';
}

}  // namespace nearmetal
