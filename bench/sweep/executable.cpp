#include "bench/sweep/executable.h"

#include <unistd.h>

#include <filesystem>
#include <stdexcept>

#include "models/load_module.h"
#include "reports/files/sha256.h"
#include "reports/json/report_files.h"

namespace nearmetal {

Executable find_executable(const std::string& path, const std::string& source) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored) || access(path.c_str(), X_OK) != 0) {
    throw std::invalid_argument(source + "/executable: '" + path +
                                "' is no program that can be started here");
  }
  Executable found{path, sha256(file_text(path)), {}};
  for (const fs::path& module : modules_of(fs::canonical(path))) {
    found.modules_sha256[module.filename()] = sha256(file_text(module));
  }
  return found;
}

}  // namespace nearmetal
