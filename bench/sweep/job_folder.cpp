#include "bench/sweep/job_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

constexpr const char* clearing_script = R"(
trap '' HUP INT TERM
cat >/dev/null
rm -rf "$@"
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
    : folder_(new_temporary_folder()),
      shared_memory_(shares_memory ? new_folder("/dev/shm") : ""),
      keeper_(clearing_script, shared_memory_.empty()
                                   ? std::vector{folder_.string()}
                                   : std::vector{folder_.string(), shared_memory_.string()}) {}

JobFolder::~JobFolder() {
  std::error_code ignored;
  for (const fs::path& folder : {folder_, shared_memory_}) {
    if (!folder.empty()) fs::remove_all(folder, ignored);
  }
  keeper_.dismiss();
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
