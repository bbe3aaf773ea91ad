#include "bench/sweep/job_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <utility>

#include "models/errors.h"

namespace nearmetal {
namespace {

constexpr size_t most_errors = 100;
constexpr std::chrono::seconds patience{5};  // of an end that was asked for

// Closes the ends that nobody has taken.
class Pipe {
 public:
  Pipe() {
    if (pipe2(ends_.data(), O_CLOEXEC) == 0) return;
    throw std::runtime_error(std::string("no pipe to a job: ") + std::strerror(errno));
  }
  ~Pipe() {
    for (const int end : ends_) {
      if (end >= 0) close(end);
    }
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int read() const { return ends_[0]; }
  int write() const { return ends_[1]; }
  int take_read() { return std::exchange(ends_[0], -1); }
  int take_write() { return std::exchange(ends_[1], -1); }

 private:
  std::array<int, 2> ends_{};
};

[[noreturn]] void become(std::vector<char*>& arguments, int in, int out, int err, int failure) {
  setpgid(0, 0);  // Ctrl-C is for the sweep
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGXFSZ, SIG_DFL);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  execvp(arguments[0], arguments.data());
  const int reason = errno;
  [[maybe_unused]] const ssize_t told = write(failure, &reason, sizeof reason);
  _exit(127);
}

// Whole lines of what has arrived.
void read_lines(int file, std::string& text,
                const std::function<void(const std::string& line)>& take) {
  std::array<char, 65536> bytes{};
  for (ssize_t count = 0; (count = read(file, bytes.data(), bytes.size())) > 0;) {
    size_t begin = text.size();
    text.append(bytes.data(), count);
    for (size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = 0) {
      std::string line = text.substr(0, end);
      text.erase(0, end + 1);
      if (line.ends_with('\r')) line.pop_back();  // of a terminal that mpirun made
      take(line);
    }
  }
}

}  // namespace

JobProcess::JobProcess(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));  // execvp() does not write to them
  }
  arguments.push_back(nullptr);
  Pipe in, out, err, failure;
  pid_ = fork();
  if (pid_ == 0) become(arguments, in.read(), out.write(), err.write(), failure.write());
  int reason = errno;
  for (const int end : {in.take_read(), out.take_write(), err.take_write(), failure.take_write()}) {
    close(end);
  }
  if (pid_ < 0 || read(failure.read(), &reason, sizeof reason) == sizeof reason) {
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    throw std::runtime_error(command.at(0) + " cannot be started: " + std::strerror(reason));
  }
  in_ = in.take_write();
  out_ = out.take_read();
  err_ = err.take_read();
  fcntl(out_, F_SETFL, O_NONBLOCK);
  fcntl(err_, F_SETFL, O_NONBLOCK);
}

JobProcess::~JobProcess() {
  if (!ended()) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const int end : {in_, out_, err_}) close(end);
}

void JobProcess::update() {
  int status = 0;
  const bool over = !ended() && waitpid(pid_, &status, WNOHANG) == pid_;
  // Errors first: where another rank failed, rank 0 may say what follows from that.
  read_lines(err_, err_text_, [this](const std::string& line) { take_err(line); });
  read_lines(out_, out_text_, [this](const std::string& line) { take_out(line); });
  if (over) {
    status_ = status;
    kill(-pid_, SIGKILL);  // what it may have left behind
  }
  if (!ended() && end_asked_ && Clock::now() - *end_asked_ > patience) kill(-pid_, SIGKILL);
}

void JobProcess::take_out(const std::string& line) {
  if (!line.starts_with('{')) return;  // of a library
  try {
    take_event(event_from_json(line));
  } catch (const InvalidReport& error) {
    take_err(std::string("a line of the job is no event: ") + error.what());
  }
}

void JobProcess::take_event(Event event) {
  if (event.kind == EventKind::ready) ready_ = true;
  if (event.kind == EventKind::measured) measured_ = true;
  if (event.kind == EventKind::result) {
    report_ = std::move(event.report);
    neighbour_ = std::move(event.neighbour);
  }
  take_word_of_a_rank(std::move(event));
}

void JobProcess::take_word_of_a_rank(Event event) {
  if (event.kind == EventKind::progress) {
    take_progress(std::move(event));
  } else if (event.kind == EventKind::failure && event.failure && !failure_) {
    failure_ = std::move(event);
  }
}

void JobProcess::take_progress(Event event) {
  Heartbeat& last = heartbeats_[event.rank];
  last.heard_at = Clock::now();
  const bool moved = event.steps != last.progress.steps || event.phase != last.progress.phase;
  if (moved) last.stepped_at = last.heard_at;
  last.progress = std::move(event);
}

// Ranks but the first send their progress and failure here.
void JobProcess::take_err(const std::string& line) {
  if (line.empty()) return;
  if (line.starts_with('{')) {
    try {
      return take_word_of_a_rank(event_from_json(line));
    } catch (const InvalidReport&) {  // of a library: an error like others
    }
  }
  errors_.push_back(line);
  if (errors_.size() > most_errors) errors_.pop_front();
}

void JobProcess::order(const std::string& line) {
  const std::string text = line + "\n";
  // A job that is gone is found by update().
  [[maybe_unused]] const ssize_t told = write(in_, text.data(), text.size());
}

void JobProcess::end() {
  if (ended() || end_asked_) return;
  end_asked_ = Clock::now();
  kill(-pid_, SIGTERM);
}

std::string JobProcess::ending() const {
  if (WIFSIGNALED(*status_)) return "signal " + std::to_string(WTERMSIG(*status_));
  return "exit code " + std::to_string(WEXITSTATUS(*status_));
}

int JobProcess::exit_code() const {
  return WIFSIGNALED(*status_) ? 128 + WTERMSIG(*status_) : WEXITSTATUS(*status_);
}

Event JobProcess::progress() const {
  const auto first = heartbeats_.find(0);
  return first == heartbeats_.end() ? Event{} : first->second.progress;
}

double JobProcess::seconds_of_silence() const {
  if (heartbeats_.empty()) return 0;
  const auto [first, last] = std::minmax_element(
      heartbeats_.begin(), heartbeats_.end(),
      [](const auto& a, const auto& b) { return a.second.heard_at < b.second.heard_at; });
  return std::chrono::duration<double>(last->second.heard_at - first->second.heard_at).count();
}

double JobProcess::seconds_without_step() const {
  Clock::duration longest{};
  for (const auto& [rank, last] : heartbeats_) {
    if (!takes_steps(last.progress) || last.progress.steps == 0) continue;
    longest = std::max(longest, Clock::now() - last.stepped_at);
  }
  return std::chrono::duration<double>(longest).count();
}

bool takes_steps(const Event& progress) {
  const std::optional<RankPhase> phase = progress.phase;
  return phase == RankPhase::warm_up || phase == RankPhase::window || phase == RankPhase::load;
}

}  // namespace nearmetal
