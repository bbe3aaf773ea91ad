#include "reports/json/journal_json.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/file_kind.h"
#include "base/text_table.h"
#include "reports/document/metric.h"
#include "reports/json/archive.h"
#include "reports/json/json.h"
#include "reports/json/report_fields.h"
#include "reports/json/report_files.h"

namespace nearmetal {
namespace json {
namespace {

struct Header {
  std::string schema = "nearmetal/journal";
  std::string schema_version = "1.3";  // 1.3: the hash leaves out the repeats; the builds
  JournalOrigin origin;
};

void fields(Archive& field, Header& header) {
  field("schema", header.schema, one_of("nearmetal/journal"));
  field("schema_version", header.schema_version, readable_version);
  field("plan_sha256", header.origin.plan_sha256, hash);
  field.added("command", header.origin.command);
  field.added("tool", header.origin.tool);
  field.added("executables", header.origin.executables);
}

}  // namespace

void fields(Archive& field, JournalEntry& entry) {
  field("layout", entry.layout, at_least(0));
  field("repeat", entry.repeat, at_least(1));
  if (field.reads()) return field.require("report");  // which is read like a whole document
  field("report", entry.report);
}

}  // namespace json

namespace {

std::string again_by(const std::string& command, const std::filesystem::path& path) {
  if (command.empty()) return "";
  return ", " + printable(command) + ", and --resume " + printable(path.string());
}

// Another build can have planned otherwise, so that this comes first.
void require_same_build(const Tool& then, const Tool& now, const std::filesystem::path& path) {
  if (then == now) return;
  const auto text_of = [](const Tool& tool) {
    return build_text(tool) + " by " + tool.compiler + ", build ID " +
           tool.build_id.value_or("not known");
  };
  throw std::invalid_argument(path.string() + " is the journal of another build of nearmetal (" +
                              printable(text_of(then)) + "; this is " + text_of(now) +
                              "): resume it with that one, or take the runs of both by " +
                              "--allow-other-build");
}

// Both are of the same plan, so that each of today is among those of then.
void require_same_executables(const std::vector<Executable>& then,
                              const std::vector<Executable>& now,
                              const std::filesystem::path& path) {
  for (const Executable& executable : now) {
    if (std::ranges::find(then, executable) != then.end()) continue;
    throw std::invalid_argument(path.string() + " holds runs of another build of " +
                                printable(executable.path) +
                                " than lies there now: put that one back, or take the runs of " +
                                "both by --allow-other-build");
  }
}

void require_same(const json::Header& header, const JournalOrigin& origin, bool any_build,
                  const std::filesystem::path& path) {
  const json::Header today;
  if (header.schema_version != today.schema_version) {
    throw std::invalid_argument(
        path.string() + " is a journal of version " + header.schema_version +
        ": resume it with the nearmetal that wrote it" + again_by(header.origin.command, path));
  }
  if (!any_build) require_same_build(header.origin.tool, origin.tool, path);
  if (header.origin.plan_sha256 != origin.plan_sha256) {
    throw std::invalid_argument(path.string() +
                                " is the journal of another plan: give the same layouts, options " +
                                "and files as before" + again_by(header.origin.command, path));
  }
  if (!any_build) {
    require_same_executables(header.origin.executables, origin.executables, path);
  }
}

// As far as it tells a journal from other files.
std::string beginning_of_header() {
  const std::string whole = json::line_of(json::Header{});
  return whole.substr(0, whole.find(',', whole.find("nearmetal/journal")));
}

// Whether the text may be a header that was cut off as it was written, before any run.
bool is_torn_header(std::string_view text) {
  const std::string beginning = beginning_of_header();
  return text.find('\n') == text.npos &&
         (text.starts_with(beginning) || beginning.starts_with(text));
}

JournalEntry entry_of(const std::string& line) {
  auto entry = json::parsed<JournalEntry>(line);
  entry.report = consistent_report_from_json(line, "report");
  return entry;
}

// The last run counts where one was repeated.
void take_entry(JournalEntry entry, std::vector<JournalEntry>& entries) {
  std::erase_if(entries, [&](const JournalEntry& earlier) {
    return earlier.layout == entry.layout && earlier.repeat == entry.repeat;
  });
  entries.push_back(std::move(entry));
}

Descriptor opened(const std::filesystem::path& path, int flags) {
  require_own_links(path);
  Descriptor file(open(path.c_str(), flags | O_WRONLY | O_APPEND | O_CLOEXEC, 0666));
  if (!file.is_open()) {
    throw OutputError(path.string() + " cannot be written: " + std::strerror(errno) +
                      (errno == EEXIST ? "; go on with it by --resume, or remove it" : ""));
  }
  // Where a file system has no locks, nobody is kept out.
  if (flock(file.number(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return file;
  throw OutputError(path.string() + " is being written by another sweep; let it end, or end it");
}

}  // namespace

bool holds_runs_of(const std::filesystem::path& report_path,
                   const std::filesystem::path& journal) try {
  std::istringstream lines(file_text(journal));
  std::string line;
  if (!std::getline(lines, line) || !line.starts_with(beginning_of_header())) return false;
  std::vector<JournalEntry> entries;
  while (std::getline(lines, line)) take_entry(entry_of(line), entries);
  if (entries.empty()) return true;
  const Report report = read_report(report_path);
  return std::ranges::all_of(entries, [&](const JournalEntry& entry) {
    const Arm& arm = entry.report.arms.at(0);
    const auto is_it = [&](const Run& run) {
      return run.started_at == arm.runs.at(0).started_at &&
             run.throughput == arm.runs.at(0).throughput;
    };
    return arm.unsupported || std::ranges::any_of(report.arms, [&](const Arm& other) {
             return other.name == arm.name && std::ranges::any_of(other.runs, is_it);
           });
  });
} catch (const InvalidReport&) {
  return false;
}

Journal::Journal(std::filesystem::path path, Descriptor file)
    : path_(std::move(path)), file_(std::move(file)) {}

Journal Journal::create(const std::filesystem::path& path, const JournalOrigin& origin,
                        bool replace) {
  Journal journal(path, opened(path, O_CREAT | (replace ? 0 : O_EXCL)));
  try {
    journal.shorten(0);
    journal.write_line(json::line_of(json::Header{.origin = origin}));
  } catch (const OutputError&) {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
    throw;
  }
  return journal;
}

Journal Journal::resume(const std::filesystem::path& path, const JournalOrigin& origin,
                        bool any_build, const CheckEntry& check, std::vector<JournalEntry>& entries,
                        std::vector<Warning>& warnings) {
  if (access(path.c_str(), R_OK) != 0) {
    throw InvalidReport(path.string() + " cannot be read: " + std::strerror(errno));
  }
  Journal journal(path, opened(path, 0));  // locked before it is read
  const std::string text = file_text(path);
  if (is_torn_header(text)) {
    warnings.push_back({"torn_journal", path.string() + " ended before its first run: begun anew"});
    journal.shorten(0);
    journal.write_line(json::line_of(json::Header{.origin = origin}));
    return journal;
  }
  size_t begin = 0;
  int64_t number = 0;
  for (size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = text.substr(begin, end - begin);
    try {
      if (++number > 1) {
        JournalEntry entry = entry_of(line);
        check(entry, entries);
        take_entry(std::move(entry), entries);
      } else {
        require_same(json::parsed<json::Header>(line), origin, any_build, path);
      }
    } catch (const InvalidReport& error) {
      const std::string other = other_kind("nearmetal/journal", text);
      if (!other.empty()) throw InvalidReport(path.string() + ": " + other);
      throw InvalidReport(path.string() + " line " + std::to_string(number) + ": " + error.what());
    }
  }
  if (number == 0) throw InvalidReport(path.string() + " is no journal of a sweep");
  if (begin < text.size()) {
    warnings.push_back({"torn_journal", path.string() + " ended in the middle of a run: repeated"});
  }
  journal.shorten(begin);
  return journal;
}

void Journal::append(const JournalEntry& entry) {
  const std::string line = json::line_of(entry);
  const off_t size = lseek(file_.number(), 0, SEEK_END);
  try {
    write_line(line);
  } catch (const OutputError&) {
    if (size >= 0) shorten(size);
    throw;
  }
}

void Journal::shorten(size_t bytes) {
  if (ftruncate(file_.number(), static_cast<off_t>(bytes)) == 0) return;
  throw OutputError(path_.string() + " cannot be shortened: " + std::strerror(errno));
}

void Journal::write_line(const std::string& line) {
  const std::string text = line + "\n";
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = write(file_.number(), text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw OutputError(path_.string() + " cannot be written: " + std::strerror(errno));
    }
    done += count;
  }
  if (fsync(file_.number()) != 0 && errno != EINVAL) {
    throw OutputError(path_.string() + " cannot be written: " + std::strerror(errno));
  }
}

}  // namespace nearmetal
