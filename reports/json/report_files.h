// The reports in files, and texts of files and of standard input.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "reports/document/types.h"

namespace nearmetal {

/// One report of a file, not read yet.
struct ReportText {
  std::string source;  // the file, with ":LINE" where it holds several
  std::string text;
};

/// The reports of a file, or with - of standard input: one, or those that stand in a log, each from
/// the start of a line or behind another. A file without any is one text. Throws InvalidReport for
/// what cannot be read.
std::vector<ReportText> report_texts(const std::filesystem::path& path);

/// Whether a text says that it is a report, as a damaged one still does, but for one that is cut
/// off within its first line.
bool claims_to_be_report(std::string_view text);

/// Reads as consistent_report_from_json() does, and names the source of what it refuses.
Report read_report(ReportText report);
/// Reads a file, or with - standard input, that holds one report.
Report read_report(const std::filesystem::path& path);

/// Why a file does not open: "it is a folder", or what the system says.
std::string why_unreadable(const std::filesystem::path& path);

/// The whole content. Throws InvalidReport for what is no file or cannot be read.
std::string file_text(const std::filesystem::path& path);
/// All that is left of it.
std::string standard_input();
/// The text of a file, or with - of standard input. Throws std::invalid_argument for a second -.
std::string input_text(const std::filesystem::path& path);

}  // namespace nearmetal
