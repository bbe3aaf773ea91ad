// A table of text cells, for a terminal or as Markdown.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace nearmetal {

struct TextTable {
  struct Column {
    std::string title;
    bool right_aligned = false;
    bool dispensable = false;  // left out where the table is too wide for its place
  };
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // as many cells as there are columns
};

struct TitledTable {
  std::string title;
  TextTable table;
  std::string legend{};                // what its columns mean, or empty
  std::vector<std::string> remarks{};  // below it, one line each
};

/// Prints as TableRows (table_rows.h) does, columns being as wide as their widest cell.
/// `last_styles`: an escape sequence for the last cell of each row, where there are any.
void print_aligned(std::ostream& out, const TextTable& table,
                   const std::vector<const char*>& last_styles = {});

/// A line of words on lines of at most 100 columns, or fewer by limit_columns(), the following ones
/// indented by so many columns; control characters are shown as '?'.
void print_wrapped(std::ostream& out, const std::string& line, int indent = 4);

/// A line behind what begins it, on one line but where limit_columns() lets it be no longer; what
/// follows is below the words, or indented by four columns. Control characters are shown as '?'.
void print_line(std::ostream& out, const std::string& line, const std::string& lead = "");

/// GitHub's Markdown.
void print_markdown(std::ostream& out, const TextTable& table);

/// Prints with title and legend, and an empty line behind it.
void print_aligned(std::ostream& out, const TitledTable& titled);
void print_markdown(std::ostream& out, const TitledTable& titled);

/// Text that shows as itself in Markdown, on one line: what would be HTML or a mark is escaped, and
/// nothing else.
std::string markdown_escaped(const std::string& text);

/// Code points.
size_t width_of(const std::string& text);

/// The first so many characters.
std::string cut(const std::string& text, size_t columns);

/// The text with a '?' for each character that could steer a terminal (C0, C1), turn the direction
/// of text, begin a command to a CI's log (::error::, ##[error]) or is none in XML, and for each
/// byte that is no UTF-8: for whatever comes from a report, a file's name or another program.
std::string printable(const std::string& text);

/// JSON with escapes in place of those characters, which are all within texts: it reads back
/// unchanged.
std::string printable_json(const std::string& json);

}  // namespace nearmetal
