// A table of text cells, for a terminal or as Markdown, and text that shows as itself there.
#pragma once

#include <cstddef>
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
  std::vector<std::vector<std::string>> rows{};  // as many cells as there are columns
};

struct TitledTable {
  std::string title;
  TextTable table;
  std::string legend{};                    // what its columns mean, or empty
  std::vector<std::string> remarks{};      // below it, one line each
  bool titled = true;                      // in text; in HTML all tables are
  bool folded = false;                     // in HTML, where it is below the charts
  std::vector<const char*> last_styles{};  // for the last cell of each row, where colours show
};

/// From now on tables and wrapped lines that are printed to `out` take so many columns at most,
/// as far as their words let them; 20 where it is less.
void limit_columns(std::ostream& out, size_t columns);

/// The limit that limit_columns() set; without one 0.
size_t column_limit(std::ostream& out);

struct TableFit {
  std::vector<size_t> columns;  // shown ones, by index
  std::vector<size_t> widths;   // of those
  bool too_wide = false;        // in spite of all that
};

/// Into so many columns (0: any): what the table can do without is left out, from the right, then
/// the widest columns become narrower, but none than its longest word; where that is not enough,
/// long words are broken, too.
TableFit fit(const TextTable& table, size_t columns);

/// Takes out the columns but the first in which no row has a figure: "-" or nothing.
void leave_out_empty_columns(TextTable& table);

/// The words of a cell on as many lines as it takes, at least one.
std::vector<std::string> wrap_cell(const std::string& cell, size_t width);

/// For rows that are not all known at once. Columns are as wide as those of a table need, or as
/// limit_columns() lets them be, with words of a cell on further lines; where even that is too
/// wide, each row is a list of its cells, each behind the title of its column. Control characters
/// are shown as '?'.
class TableRows {
 public:
  TableRows(std::ostream& out, const TextTable& table);

  void print_titles() const;
  /// `last_style`: an escape sequence for the last cell, or null.
  void print(const std::vector<std::string>& cells, const char* last_style = nullptr) const {
    fit_.too_wide ? print_list(cells, last_style) : print_row(cells, last_style);
  }

 private:
  void print_list(const std::vector<std::string>& cells, const char* last_style) const;
  void print_row(const std::vector<std::string>& cells, const char* last_style) const;
  void print_line_of_row(const std::vector<std::string>& parts, const char* last_style) const;

  std::ostream& out_;
  std::vector<TextTable::Column> columns_;
  TableFit fit_;
};

/// Prints as TableRows does, columns being as wide as their widest cell. `last_styles`: an escape
/// sequence for the last cell of each row, where there are any.
void print_aligned(std::ostream& out, const TextTable& table,
                   const std::vector<const char*>& last_styles = {});

/// A line of words on lines of at most 100 columns, or fewer by limit_columns(), the following ones
/// indented by so many columns; control characters are shown as '?'.
void print_wrapped(std::ostream& out, const std::string& line, int indent = 4);

/// A line behind what begins it, on one line but where limit_columns() lets it be no longer; what
/// follows is below the words, or indented by four columns. Control characters are shown as '?'.
void print_line(std::ostream& out, const std::string& line, const std::string& lead = "");

/// Prints with title, the columns of words that had no room, legend and remarks; as GitHub's
/// Markdown an empty line follows.
void print_aligned(std::ostream& out, const TitledTable& titled, bool colour = false);
void print_markdown(std::ostream& out, const TitledTable& titled);

/// Text that shows as itself in Markdown, on one line: what would be HTML or a mark is escaped, and
/// nothing else.
std::string markdown_escaped(const std::string& text);

/// How many columns of a terminal it takes.
size_t width_of(const std::string& text);

/// The first so many characters.
std::string cut(const std::string& text, size_t columns);

/// The text with a '?' for each character that could steer a terminal (C0, C1), turn the direction
/// of text, begin a command to a CI's log (::error::, ##[error]) or is none in XML, and for each
/// byte that is no UTF-8: for whatever comes from a report, a file's name or another program.
std::string printable(const std::string& text);

/// Printable text that shows as itself in HTML and XML.
std::string html_escaped(const std::string& text);

/// Printable text as a quoted cell of CSV (RFC 4180).
std::string csv_cell(const std::string& text);

/// JSON with escapes in place of those characters, which are all within texts: it reads back
/// unchanged.
std::string printable_json(const std::string& json);

}  // namespace nearmetal
