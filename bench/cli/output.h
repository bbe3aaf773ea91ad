// Where a command writes: the terminal and what it can show, the report of a run, and other files.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "base/text_table.h"
#include "reports/document/types.h"

namespace nearmetal {

class Options;

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
  void remark(const std::vector<std::string>& lines) const {
    for (const std::string& line : lines) remark(line);
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

/// Now, as RFC 3339 in UTC.
std::string time_stamp();

/// "nearmetal-FIRST-SECOND-TIME.report.json", of this moment.
std::string default_report_name(const std::string& first, const std::string& second);

struct Destination {
  std::optional<std::filesystem::path> file{};
  bool to_stdout = false;  // then nothing else goes there
  bool replace = false;
};

/// The files that a run with these settings reads.
std::vector<std::string> files_read_by(const RunConfig& config);

/// Writes the text of a report to `file`, or where that fails, among the temporary files under
/// `other_name`, so that nothing that was measured is lost. Throws OutputError in both cases: it
/// says where the report is.
void write_report_file(const std::filesystem::path& file, const std::string& text, bool replace,
                       const std::string& other_name);

/// Where a command writes what it was asked for: to standard output, unless a file other than - is
/// named.
struct OutputFile {
  std::optional<std::string> path;
  bool replace = false;

  bool is_stdout() const { return path.value_or("-") == "-"; }
};

/// --output and --force.
void add_output_options(Options& options, OutputFile& output);

/// Throws std::invalid_argument where it is one of the files that are read.
void require_no_input(const OutputFile& output, std::span<const std::string> inputs);

/// Writes what `print` prints. Throws OutputError.
void write_output(const OutputFile& output, const Terminal& terminal,
                  const std::function<void(std::ostream& out)>& print);

}  // namespace nearmetal
