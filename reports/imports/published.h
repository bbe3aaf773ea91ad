// Published logs of other programs as a report of kind imported.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reports/document/types.h"

namespace nearmetal {

/// Sides of a published comparison.
enum class PublishedSide { bare_metal, vm };
constexpr auto names_of(PublishedSide) { return std::array{"bare-metal", "vm"}; }

struct ImportOptions {
  ImportFormat format{};
  std::vector<std::string> files{};
  std::optional<std::string> origin{};  // where they were published
  std::optional<std::string> arm{};     // of all results; empty: as the files name their work
  std::optional<PublishedSide> side{};  // of pairs
};

/// The results of all files: without what this program alone can know, which the caller adds (tool,
/// invocation). Throws InvalidReport, naming file and line, for what is not as its reader needs it;
/// std::invalid_argument for a file that is given twice.
Report published_report(const ImportOptions& options);

// For the readers of the formats:

struct PublishedLog {
  std::string file;  // for messages
  std::string text;
};

/// A line of a log, for messages.
struct LogPlace {
  const PublishedLog* log = nullptr;
  int64_t number = 1;

  /// Throws InvalidReport that names the place.
  [[noreturn]] void refuse(const std::string& why) const;
  /// A finite number above 0 and nothing else, or refuse().
  double positive_number(const std::string& text, const std::string& name) const;
};

struct LogLine : LogPlace {
  std::string text;  // without its end, and what a scheduler or launcher put before it
};

struct NamedResult {
  std::string arm;
  ImportedRun run;
};

/// All lines of a log, which must outlive them, without what stands before them (file_kind.h).
std::vector<LogLine> lines_of(const PublishedLog& log, const std::vector<std::string>& beginnings);

/// Throws InvalidReport for what is missing where the text ends.
[[noreturn]] void stop_at_end(const PublishedLog& log, const std::string& why);

/// "resnet50, 8 GPUs, SYSTEM": of what the results say of their work.
std::string arm_of(const std::string& work, const ImportedRun& run);

/// Whether figures of one log that should be the same differ no more than those of genuine logs.
bool agree(double figure, double other);

}  // namespace nearmetal
