// Where a command writes, and what that place can show.
#pragma once

#include <ostream>
#include <string>

#include "reports/text/text_table.h"

namespace nearmetal {

struct Terminal {
  std::ostream& out;      // results
  std::ostream& err;      // talk
  bool colour = false;    // of `out`
  bool rewrites = false;  // whether a line of `err` can be written over
  bool quiet = false;     // no remarks
  bool is_read = false;   // whether `out` is a terminal, before which someone sits

  /// A line of talk that a script can do without.
  void remark(const std::string& text) const {
    if (!quiet) err << printable(text) << std::endl;
  }
  /// A line that is printed even where no remarks are.
  void error(const std::string& text) const {
    err << "nearmetal: " << printable(text) << std::endl;
  }
  /// In place of the last one, cut to the width of the terminal, as a line that goes on on the next
  /// cannot be taken back. Nothing where no line can be written over.
  void show_progress(const std::string& text) const;
  void clear_progress() const;
};

/// Standard output and error. Colour only on a terminal and without NO_COLOR (no-color.org). Tables
/// on standard output take the width that COLUMNS says, else that of the terminal; without either,
/// as much as they need.
Terminal standard_terminal();

}  // namespace nearmetal
