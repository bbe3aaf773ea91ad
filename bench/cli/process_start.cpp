#include "bench/cli/process_start.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <sstream>
#include <string>

namespace nearmetal {
namespace {

void occupy_standard_descriptors() {
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(standard, F_GETFD) >= 0) continue;
    // The lowest that is free: this one. Not for the use that is made of it.
    open("/dev/null", standard == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void shorten_path() {
  const char* path = std::getenv("PATH");
  if (path == nullptr) return;
  std::istringstream folders(path);
  std::string kept;
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (folder.starts_with('/')) kept += (kept.empty() ? "" : ":") + folder;
  }
  // An empty one would be the current folder, too.
  kept.empty() ? unsetenv("PATH") : setenv("PATH", kept.c_str(), 1);
}

}  // namespace

void settle_process() {
  occupy_standard_descriptors();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  shorten_path();
}

}  // namespace nearmetal
