#include "bench/environment/child_output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <sstream>

namespace nearmetal {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int not_started = 127;  // as shells say it
constexpr size_t longest_text = 64 << 10;

[[noreturn]] void become(const std::vector<std::string>& arguments, int out, pid_t parent) {
  end_with_parent(parent, SIGKILL);
  setpgid(0, 0);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  std::vector<char*> pointers;
  for (const std::string& argument : arguments) {
    pointers.push_back(const_cast<char*>(argument.c_str()));  // execvp() does not write to them
  }
  pointers.push_back(nullptr);
  execvp(pointers[0], pointers.data());
  _exit(not_started);
}

// Until the other end is closed or the time is up; false: it is.
bool read_all(int from, Clock::time_point deadline, std::string& text) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd ready{from, POLLIN, 0};
    const int count = poll(&ready, 1, static_cast<int>(std::max<int64_t>(0, left.count())));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    std::array<char, 4096> part{};
    const ssize_t bytes = read(from, part.data(), part.size());
    if (bytes <= 0) return true;
    text.append(part.data(), std::min<size_t>(bytes, longest_text - text.size()));
  }
}

}  // namespace

void end_with_parent(pid_t parent, int signal) {
  prctl(PR_SET_PDEATHSIG, signal);
  if (getppid() != parent) _exit(not_started);  // of an end before that call nothing is sent
}

bool is_on_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

ChildOutput run_child(const std::vector<std::string>& arguments, double seconds) {
  ChildOutput output;
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return output;
  const pid_t parent = getpid(), child = fork();
  if (child == 0) become(arguments, ends[1], parent);
  close(ends[1]);
  if (child > 0) {
    const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                             std::chrono::duration<double>(seconds));
    output.timed_out = !read_all(ends[0], deadline, output.text);
    if (output.timed_out) kill(-child, SIGKILL);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) != not_started) {
      output.exit_status = WEXITSTATUS(status);
    }
  }
  close(ends[0]);
  return output;
}

}  // namespace nearmetal
