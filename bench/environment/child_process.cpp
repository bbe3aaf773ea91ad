#include "bench/environment/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "base/text.h"

namespace nearmetal {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int not_started = 127;  // as shells say it
constexpr size_t longest_text = 64 << 20;
constexpr std::chrono::milliseconds poll_interval{1};

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers = transformed(words, [](const std::string& word) {
    return const_cast<char*>(word.c_str());  // execvpe() does not write to them
  });
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> environment_with(const std::vector<std::string>& changed) {
  std::vector<std::string> variables = changed;
  const auto name_of = [](const std::string& variable) {
    return variable.substr(0, variable.find('='));
  };
  for (char** own = environ; *own != nullptr; ++own) {
    const std::string name = name_of(*own);
    const auto is_changed = [&](const std::string& other) { return name_of(other) == name; };
    if (std::ranges::none_of(changed, is_changed)) variables.emplace_back(*own);
  }
  return variables;
}

// What the options say, in the child. Between fork() and exec nothing may be allocated, as another
// thread of the parent may have held that lock. `failure` takes the errno of the exec.
[[noreturn]] void become(char* const* arguments, char* const* variables,
                         const ChildOptions& options, int failure, pid_t parent) {
  options.own_session ? setsid() : setpgid(0, 0);
  if (options.signal_at_our_end != 0) end_with_parent(parent, options.signal_at_our_end);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int ignored : {SIGPIPE, SIGXFSZ}) std::signal(ignored, SIG_DFL);
  dup2(options.in >= 0 ? options.in : open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
  if (options.out >= 0) dup2(options.out, STDOUT_FILENO);
  if (options.err >= 0) dup2(options.err, STDERR_FILENO);
  // Of a library, or of who started this process. A kernel before 5.11 leaves them open.
  close_range(STDERR_FILENO + 1, UINT_MAX, CLOSE_RANGE_CLOEXEC);
  if (options.kept >= 0) fcntl(options.kept, F_SETFD, 0);
  execvpe(arguments[0], arguments, variables);
  const int reason = errno;
  [[maybe_unused]] const ssize_t bytes = write(failure, &reason, sizeof reason);
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

// None: it still runs then.
std::optional<int> status_until(Clock::time_point deadline, pid_t child) {
  for (int status = 0;; std::this_thread::sleep_for(poll_interval)) {
    if (waitpid(child, &status, WNOHANG) == child) return status;
    if (Clock::now() > deadline) return std::nullopt;
  }
}

// Its status, as waitpid() tells it, once it has ended.
int wait_for_child(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

Pipe::Pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "no pipe to another process");
  }
  read = Descriptor(ends[0]);
  write = Descriptor(ends[1]);
}

pid_t start_child(const std::vector<std::string>& arguments, const ChildOptions& options) {
  const std::vector<std::string> environment = environment_with(options.variables);
  const std::vector<char*> words = pointers_to(arguments), variables = pointers_to(environment);
  Pipe failure;  // ends without a word where the program runs
  const pid_t parent = getpid(), child = fork();
  if (child == 0) {
    become(words.data(), variables.data(), options, failure.write.number(), parent);
  }
  int reason = errno;
  failure.write.close();
  ssize_t bytes = 0;
  while (child > 0 && (bytes = read(failure.read.number(), &reason, sizeof reason)) < 0 &&
         errno == EINTR) {
  }
  if (child > 0 && bytes == 0) return child;
  if (child > 0) kill_child(child);
  throw std::system_error(reason, std::generic_category(), arguments.at(0) + " cannot be started");
}

int kill_child(pid_t child) {
  kill(-child, SIGKILL);
  kill_session(child);
  return wait_for_child(child);
}

// Again as long as there are new ones, which one that is killed now may just have started.
void kill_session(pid_t child) {
  std::set<pid_t> killed;
  for (bool found = true; found;) {
    found = false;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
      const pid_t process = std::atoi(entry.path().filename().c_str());  // 0: of none
      if (process <= 0 || getsid(process) != child || !killed.insert(process).second) continue;
      found = true;
      kill(process, SIGKILL);
    }
  }
}

void end_with_parent(pid_t parent, int signal) {
  prctl(PR_SET_PDEATHSIG, signal);
  if (getppid() != parent) _exit(not_started);  // of an end before that call nothing is sent
}

// A child may close its output and go on, or leave it to another that does.
ChildOutput run_child(const std::vector<std::string>& arguments, double seconds,
                      ChildOptions options) try {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(seconds));
  Pipe pipe;
  options.out = pipe.write.number();
  if (options.err < 0) options.err = options.out;
  options.signal_at_our_end = SIGKILL;
  const pid_t child = start_child(arguments, options);
  pipe.write.close();
  ChildOutput output;
  std::optional<int> status;
  if (read_all(pipe.read.number(), deadline, output.text)) status = status_until(deadline, child);
  output.timed_out = !status;
  if (!status) {
    kill_child(child);
  } else if (WIFEXITED(*status)) {
    output.exit_status = WEXITSTATUS(*status);
  }
  return output;
} catch (const std::system_error& error) {
  if (error.code() == std::errc::resource_unavailable_try_again)
    throw;  // nothing about the program
  return {};
}

bool is_on_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  const std::vector<std::string> folders = split(path == nullptr ? "" : path, ":");
  return std::ranges::any_of(folders, [&](const std::string& folder) {
    return !folder.empty() && access((folder + "/" + program).c_str(), X_OK) == 0;
  });
}

Keeper::Keeper(const char* script, const std::vector<std::string>& arguments) {
  Pipe input;
  // Its commands, whatever PATH is. An empty element would be the current folder.
  const std::string found = "PATH=\"${PATH:+$PATH:}/usr/bin:/bin\"\n";
  std::vector<std::string> words = {"/bin/sh", "-c", found + script, "nearmetal-keeper"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  pid_ = start_child(words, {.in = input.read.number(), .own_session = true});
  lifeline_ = std::move(input.write);
}

void Keeper::finish() {
  lifeline_.close();
  if (pid_ > 0) wait_for_child(std::exchange(pid_, -1));
}

void Keeper::leave() {
  lifeline_.close();
  pid_ = -1;
}

void Keeper::dismiss() {
  if (pid_ > 0) kill_child(std::exchange(pid_, -1));
}

}  // namespace nearmetal
