// A sweep's runs as they end, one line of JSON each, so that a sweep that is killed loses none.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "reports/document/types.h"

namespace nearmetal {

struct JournalEntry {
  int64_t layout = 0;  // index in the plan
  int64_t repeat = 0;  // counted from 1
  Report report;       // of one arm with one run
};

/// The plan and the command that a journal belongs to.
struct JournalOrigin {
  std::string plan_sha256;
  std::string command;  // the one that asked for the plan, as a shell reads it; empty: not known
  Tool tool;            // the build of the sweep
  std::vector<Executable> executables{};  // those that its layouts name
};

/// Throws InvalidReport for an entry that does not belong behind those before it.
using CheckEntry =
    std::function<void(const JournalEntry& entry, const std::vector<JournalEntry>& before)>;

/// Whether that is a journal, and the report has the last of each of its runs.
bool holds_runs_of(const std::filesystem::path& report, const std::filesystem::path& journal);

/// Appends to a file that holds all entries so far. Each is on the disk when append() returns.
class Journal {
 public:
  /// A new file, which must not be there unless `replace`. Throws OutputError, and leaves none.
  static Journal create(const std::filesystem::path& path, const JournalOrigin& origin,
                        bool replace = false);
  /// Goes on with one of the same plan and, unless `any_build`, of the same builds; of a run that
  /// was repeated, the last counts. A last line that is torn is dropped, with a warning. Throws
  /// InvalidReport, which names the line, or std::invalid_argument for the journal of another plan,
  /// which says the command that asked for that one, or of another build.
  static Journal resume(const std::filesystem::path& path, const JournalOrigin& origin,
                        bool any_build, const CheckEntry& check, std::vector<JournalEntry>& entries,
                        std::vector<Warning>& warnings);

  /// Throws OutputError; then the file ends with the entry before.
  void append(const JournalEntry& entry);
  const std::filesystem::path& path() const { return path_; }

 private:
  Journal(std::filesystem::path path, Descriptor file);
  void write_line(const std::string& line);
  void shorten(size_t bytes);

  std::filesystem::path path_;
  Descriptor file_;
};

}  // namespace nearmetal
