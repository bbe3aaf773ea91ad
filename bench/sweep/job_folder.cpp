#include "bench/sweep/job_folder.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

// A rank that outlives its launcher may make a file in a folder that is being removed. Nobody who
// reads the output of this process is to wait for that.
constexpr const char* clearing_script = R"(
trap '' HUP INT TERM
exec >/dev/null 2>&1
cat
for tenth in $(seq 50); do
  rm -rf "$@" && break
  sleep 0.1
done
)";

// The names of sockets, which lie below it, may have some hundred bytes.
std::string new_folder(const fs::path& place) {
  std::string name = (place / "nearmetal-XXXXXX").string();
  return mkdtemp(name.data()) == nullptr ? "" : name;
}

fs::path new_temporary_folder() {
  std::error_code error;
  const fs::path place = fs::temp_directory_path(error);
  if (error) throw std::runtime_error("no folder for temporary files: " + error.message());
  const std::string folder = new_folder(place);
  if (!folder.empty()) return folder;
  throw std::runtime_error("no folder for a job in " + place.string() + ": " +
                           std::strerror(errno));
}

}  // namespace

// Where there is no /dev/shm, Open MPI finds another place.
JobFolder::JobFolder(bool shares_memory)
    : folder_(new_temporary_folder()), shared_memory_(shares_memory ? new_folder("/dev/shm") : "") {
  std::vector<std::string> folders = {folder_.string()};
  if (!shared_memory_.empty()) folders.push_back(shared_memory_.string());
  try {
    keeper_.emplace(clearing_script, folders);
  } catch (const std::exception&) {
    // Unlike remove_all() this opens no file, which may be what was wrong.
    for (const std::string& folder : folders) rmdir(folder.c_str());
    throw;
  }
}

JobFolder::~JobFolder() {
  bool gone = true;
  for (const fs::path& folder : {folder_, shared_memory_}) {
    std::error_code error;
    if (!folder.empty()) fs::remove_all(folder, error);
    gone = gone && !error;
  }
  gone ? keeper_->dismiss() : keeper_->leave();
}

std::vector<std::string> JobFolder::variables() const {
  std::vector<std::string> found = {"TMPDIR=" + folder_.string()};
  if (shared_memory_.empty()) return found;
  // As Open MPI 4.1 and 5 call it.
  for (const char* component : {"vader", "sm"}) {
    found.push_back(std::string("OMPI_MCA_btl_") + component +
                    "_backing_directory=" + shared_memory_.string());
  }
  return found;
}

}  // namespace nearmetal
