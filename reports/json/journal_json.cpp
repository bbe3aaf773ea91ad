#include "reports/json/journal_json.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "models/errors.h"
#include "reports/json/json_archive.h"
#include "reports/json/json_reader.h"
#include "reports/text/text_table.h"

namespace nearmetal {
namespace json {
namespace {

struct Header {
  std::string schema = "nearmetal/journal";
  std::string schema_version = "1.2";  // 1.2: a setting that file and layout both give appears once
  std::string plan_sha256;
  std::string command{};
};

template <class Archive>
void fields(Archive& field, In<Archive, Header> header) {
  field("schema", header.schema, one_of("nearmetal/journal"));
  field("schema_version", header.schema_version, readable_version);
  field("plan_sha256", header.plan_sha256, hash);
  field.added("command", header.command);
}

}  // namespace

template <class Archive>
void fields(Archive& field, In<Archive, JournalEntry> entry) {
  field("layout", entry.layout, at_least(0));
  field("repeat", entry.repeat, at_least(1));
  field("report", entry.report);
}

}  // namespace json

namespace {

template <class T>
std::string line_of(const T& value) {
  return json::Writer::json_of(value).dump(-1, ' ', false, json::replace_bad_utf8);
}

void require_same(const json::Header& header, const std::string& plan_sha256,
                  const std::filesystem::path& path) {
  if (header.plan_sha256 == plan_sha256) return;
  const std::string again = ", " + printable(header.command) + ", and --resume ";
  throw std::invalid_argument(
      path.string() + " is the journal of another plan: give the same layouts, options and files " +
      "as before" + (header.command.empty() ? "" : again + printable(path.string())) +
      (header.schema_version == "1.1" ? "; this journal is of version 1.1: resume it with the "
                                        "nearmetal that wrote it"
                                      : ""));
}

int opened(const std::filesystem::path& path, int flags) {
  const int file = open(path.c_str(), flags | O_WRONLY | O_APPEND | O_CLOEXEC, 0666);
  // Where a file system has no locks, nobody is kept out.
  if (file >= 0 && (flock(file, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)) return file;
  if (file >= 0) {
    close(file);
    throw OutputError(path.string() + " is being written by another sweep; let it end, or end it");
  }
  throw OutputError(path.string() + " cannot be written: " + std::strerror(errno) +
                    (errno == EEXIST ? "; go on with it by --resume, or remove it" : ""));
}

}  // namespace

Journal::Journal(std::filesystem::path path, int file) : path_(std::move(path)), file_(file) {}
Journal::Journal(Journal&& other) noexcept : path_(std::move(other.path_)), file_(other.file_) {
  other.file_ = -1;
}
Journal::~Journal() {
  if (file_ >= 0) close(file_);
}

Journal Journal::create(const std::filesystem::path& path, const std::string& plan_sha256,
                        const std::string& command) {
  Journal journal(path, opened(path, O_CREAT | O_EXCL));
  journal.write_line(line_of(json::Header{.plan_sha256 = plan_sha256, .command = command}));
  return journal;
}

Journal Journal::resume(const std::filesystem::path& path, const std::string& plan_sha256,
                        std::vector<JournalEntry>& entries, std::vector<Warning>& warnings) {
  if (access(path.c_str(), R_OK) != 0) {
    throw InvalidReport(path.string() + " cannot be read: " + std::strerror(errno));
  }
  Journal journal(path, opened(path, 0));  // locked before it is read
  const std::string text = file_text(path);
  size_t begin = 0;
  int64_t number = 0;
  for (size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = text.substr(begin, end - begin);
    try {
      if (++number > 1) {
        entries.push_back(json::parsed<JournalEntry>(line));
      } else {
        require_same(json::parsed<json::Header>(line), plan_sha256, path);
      }
    } catch (const InvalidReport& error) {
      throw InvalidReport(path.string() + " line " + std::to_string(number) + ": " + error.what());
    }
  }
  if (number == 0) throw InvalidReport(path.string() + " is no journal of a sweep");
  if (begin < text.size()) {
    warnings.push_back({"torn_journal", path.string() + " ended in the middle of a run: repeated"});
  }
  if (ftruncate(journal.file_, static_cast<off_t>(begin)) != 0) {
    throw OutputError(path.string() + " cannot be shortened: " + std::strerror(errno));
  }
  return journal;
}

void Journal::append(const JournalEntry& entry) { write_line(line_of(entry)); }

void Journal::write_line(const std::string& line) {
  const std::string text = line + "\n";
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = write(file_, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw OutputError(path_.string() + " cannot be written: " + std::strerror(errno));
    }
    done += count;
  }
  if (fsync(file_) != 0 && errno != EINVAL) {
    throw OutputError(path_.string() + " cannot be written: " + std::strerror(errno));
  }
}

}  // namespace nearmetal
