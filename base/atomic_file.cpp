#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <stdexcept>

#include "base/descriptor.h"
#include "base/errors.h"

namespace nearmetal {
namespace {

constexpr const char* exists = "it exists; --force replaces it";

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& reason) {
  throw OutputError("cannot write " + path.string() + ": " + reason);
}

[[noreturn]] void fail_with_errno(const std::filesystem::path& path) {
  fail(path, std::strerror(errno));
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

// umask() would change that of other threads for a moment.
mode_t own_umask() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (mode_t mask = 0; word == "Umask:" && status >> std::oct >> mask) return mask;
  }
  return 022;
}

// As whom this user namespace shows the machine's root.
uid_t root_user() {
  struct stat found {};
  return lstat("/proc/self", &found) == 0 ? found.st_uid : 0;
}

// The first link on the way to a file, or to what a link on it names, that neither root nor this
// user made.
std::optional<std::filesystem::path> foreign_link(const std::filesystem::path& path) {
  std::error_code ignored;  // what is gone leads nowhere
  std::filesystem::path way;
  for (const std::filesystem::path& part : std::filesystem::absolute(path, ignored)) {
    way /= part;
    struct stat found {};
    if (lstat(way.c_str(), &found) != 0 || !S_ISLNK(found.st_mode)) continue;
    if (found.st_uid != geteuid() && found.st_uid != root_user()) return way;
    const auto named = std::filesystem::read_symlink(way, ignored);
    if (const auto foreign = foreign_link(way.parent_path() / named)) return foreign;
  }
  return std::nullopt;
}

// Where a file that may be replaced lies.
std::filesystem::path place_of(const std::filesystem::path& path, bool replace) {
  if (!replace) return path;
  require_own_links(path);
  std::error_code error;
  if (!std::filesystem::is_symlink(path, error)) return path;
  std::filesystem::path named = std::filesystem::weakly_canonical(path, error);
  if (error) fail(path, error.message());
  return named;
}

bool is_character_device(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_character_file(std::filesystem::status(path, ignored));
}

void write_to_device(const std::filesystem::path& path, std::span<const std::string_view> parts) {
  require_own_links(path);
  std::ofstream device(path, std::ios::binary);
  for (const std::string_view part : parts) device << part;
  if (!device.flush()) fail_with_errno(path);
}

// A file with its name would take its place.
void require_no_device(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_other(std::filesystem::status(path, ignored))) {
    fail(path, "it is a disk, a pipe or a socket; name a file");
  }
}

// An open file that vanishes with this object unless it was given its final name. Where the file
// system can, it has no name before, so that it vanishes with the process as well.
class TemporaryFile {
 public:
  // `path` is the final one, for messages.
  explicit TemporaryFile(const std::filesystem::path& path)
      : path_(path),
        file_(open(folder_of(path).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, S_IRUSR | S_IWUSR)) {
    if (file_.is_open()) return;
    name_ = name_ending("XXXXXX");
    file_ = Descriptor(mkostemp(name_.data(), O_CLOEXEC));
    if (!file_.is_open()) fail_with_errno(path_);
  }
  ~TemporaryFile() {
    if (!named_ && !name_.empty()) unlink(name_.c_str());
  }

  void append(std::string_view content) {
    while (!content.empty()) {
      const ssize_t written = write(file_.number(), content.data(), content.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail_with_errno(path_);
      content.remove_prefix(static_cast<size_t>(written));
    }
  }

  void take_name(bool replace) {
    // mkostemp() makes files that only their owner reads; a report is for everyone that umask lets.
    const mode_t mask = own_umask();
    if (fchmod(file_.number(), 0666 & ~mask) != 0 || fsync(file_.number()) != 0)
      fail_with_errno(path_);
    if (name_.empty() && link_as(path_)) return;
    if (name_.empty() && !replace) fail(path_, exists);
    for (int number = 0; name_.empty(); ++number) {
      const std::string name = name_ending(std::to_string(getpid()) + "-" + std::to_string(number));
      if (link_as(name)) name_ = name;
    }
    // Some file systems report a full disk only here.
    if (file_.close() != 0) fail_with_errno(path_);
    rename_to_path(replace);
  }

 private:
  std::string name_ending(const std::string& end) const {
    return (folder_of(path_) / (".nearmetal-" + end)).string();
  }

  // Gives a file without a name this one; false where there is another of that name.
  bool link_as(const std::filesystem::path& name) const {
    const std::string open_file = "/proc/self/fd/" + std::to_string(file_.number());
    const int failed =
        linkat(AT_FDCWD, open_file.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW);
    if (failed != 0 && errno != EEXIST) fail_with_errno(path_);
    return failed == 0;
  }

  void rename_to_path(bool replace) {
    // Without `replace` the kernel refuses a name that exists: no gap between look and act.
    const unsigned flags = replace ? 0 : RENAME_NOREPLACE;
    named_ = renameat2(AT_FDCWD, name_.c_str(), AT_FDCWD, path_.c_str(), flags) == 0;
    if (named_) return;
    // Some network file systems have no such rename, but hard links, which never replace.
    const bool linked = errno == EINVAL && link(name_.c_str(), path_.c_str()) == 0;
    if (!linked && errno == EEXIST) fail(path_, exists);
    if (!linked) fail_with_errno(path_);
  }

  std::filesystem::path path_;
  std::string name_{};  // empty: none yet
  Descriptor file_;
  bool named_ = false;
};

}  // namespace

void require_own_links(const std::filesystem::path& path) {
  struct stat ignored {};
  if (stat(path.c_str(), &ignored) != 0 && errno == ELOOP) fail_with_errno(path);
  if (const auto foreign = foreign_link(path)) {
    fail(path, foreign->string() + " is a link of another user; name what it stands for");
  }
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content,
                           bool replace) {
  write_file_atomically(path, {&content, 1}, replace);
}

void write_file_atomically(const std::filesystem::path& path,
                           std::span<const std::string_view> parts, bool replace) {
  if (is_character_device(path)) return write_to_device(path, parts);
  require_no_device(path);
  const std::filesystem::path place = place_of(path, replace);
  {
    TemporaryFile file(place);
    for (const std::string_view part : parts) file.append(part);
    file.take_name(replace);
  }
  const Descriptor folder(open(folder_of(place).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // The file is there; only its safety against a power cut is not known.
  if (folder.is_open()) fsync(folder.number());
}

void require_writable(const std::filesystem::path& path, bool replace) {
  std::error_code ignored;
  if (!path.has_filename() || std::filesystem::is_directory(path, ignored)) {
    fail(path, "it is a folder; name a file in it");
  }
  if (is_character_device(path)) {
    require_own_links(path);
    if (access(path.c_str(), W_OK) != 0) fail_with_errno(path);
    return;
  }
  require_no_device(path);
  if (!replace && std::filesystem::exists(std::filesystem::symlink_status(path, ignored))) {
    fail(path, exists);
  }
  const std::filesystem::path place = place_of(path, replace);
  if (!std::filesystem::is_directory(folder_of(place), ignored)) {
    fail(path, "there is no folder " + folder_of(place).string());
  }
  std::error_code error;
  (void)std::filesystem::symlink_status(place, error);
  if (error == std::errc::filename_too_long) fail(path, "its name is too long");
  TemporaryFile probe(place);
}

void require_no_input(const std::filesystem::path& output, std::span<const std::string> inputs) {
  for (const std::string& input : inputs) {
    std::error_code ignored;  // what is not there is no input
    if (!std::filesystem::equivalent(output, input, ignored)) continue;
    throw std::invalid_argument(output.string() + " is read here, and writing it would destroy it" +
                                (output == input ? "" : " (as " + input + ")") +
                                ": name another file");
  }
}

}  // namespace nearmetal
