#include "bench/sweep/job_folder.h"

#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <random>
#include <stdexcept>
#include <system_error>

#include "bench/run/last_report.h"

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

fs::path temporary_folder() {
  std::error_code error;
  fs::path place = fs::temp_directory_path(error);
  if (error) throw std::runtime_error("no folder for temporary files: " + error.message());
  return place;
}

// Random, so that nobody has it: the keeper is told it before there is such a folder. Short, as the
// names of sockets, which lie below it, may have some hundred bytes.
std::string new_name() {
  std::random_device random;
  std::array<char, 16> digits{};
  const uint64_t number = uint64_t{random()} << 32 | random();
  const char* const end =
      std::to_chars(digits.data(), digits.data() + digits.size(), number, 36).ptr;
  return "nearmetal-" + std::string(digits.data(), end - digits.data());
}

std::vector<std::string> names_of(const fs::path& folder, const fs::path& shared_memory) {
  if (shared_memory.empty()) return {folder.string()};
  return {folder.string(), shared_memory.string()};
}

}  // namespace

// The keeper comes first: a process that is killed between the two leaves no folder. Where there is
// no /dev/shm, Open MPI finds another place.
JobFolder::JobFolder(bool shares_memory)
    : folder_(temporary_folder() / new_name()),
      shared_memory_(shares_memory ? fs::path("/dev/shm") / folder_.filename() : ""),
      keeper_(clearing_script, names_of(folder_, shared_memory_)) {
  if (mkdir(folder_.c_str(), S_IRWXU) != 0) {
    throw std::runtime_error("no folder for a job in " + folder_.parent_path().string() + ": " +
                             std::strerror(errno));
  }
  if (!shared_memory_.empty() && mkdir(shared_memory_.c_str(), S_IRWXU) != 0) {
    shared_memory_.clear();
  }
}

JobFolder::~JobFolder() {
  bool gone = true;
  for (const fs::path& folder : {folder_, shared_memory_}) {
    std::error_code error;
    if (!folder.empty()) fs::remove_all(folder, error);
    gone = gone && !error;
  }
  gone ? keeper_.dismiss() : keeper_.leave();
}

std::vector<std::string> JobFolder::variables() const {
  std::vector<std::string> found = {
      "TMPDIR=" + folder_.string(),
      std::string(last_report_variable) + "=" + last_report().string()};
  if (shared_memory_.empty()) return found;
  // The names in Open MPI 4.1 and 5.
  for (const char* component : {"vader", "sm"}) {
    found.push_back(std::string("OMPI_MCA_btl_") + component +
                    "_backing_directory=" + shared_memory_.string());
  }
  return found;
}

}  // namespace nearmetal
