#include "bench/sweep/job_process.h"

#include <fcntl.h>
#include <sys/ioctl.h>
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

#include "bench/environment/child_output.h"
#include "bench/run/sweep_control.h"
#include "models/errors.h"
#include "reports/json/consistency.h"
#include "reports/json/report_files.h"

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

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) {
    pointers.push_back(const_cast<char*>(word.c_str()));  // execvpe() does not write to them
  }
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

[[noreturn]] void become(const std::vector<char*>& arguments, const std::vector<char*>& variables,
                         int in, int out, int err, int failure, pid_t parent) {
  setpgid(0, 0);  // Ctrl-C is for the sweep
  end_with_parent(parent, SIGTERM);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGXFSZ, SIG_DFL);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  execvpe(arguments[0], arguments.data(), variables.data());
  const int reason = errno;
  [[maybe_unused]] const ssize_t told = write(failure, &reason, sizeof reason);
  _exit(127);
}

// Takes the whole lines of `text`, of which those before `unread` have no end, out of it.
void take_lines(std::string& text, size_t unread,
                const std::function<void(const std::string& line)>& take) {
  size_t begin = 0;
  for (size_t end = 0; (end = text.find('\n', unread)) != std::string::npos; unread = begin) {
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.pop_back();  // of a terminal that mpirun made
    take(line);
  }
  text.erase(0, begin);
}

// Whole lines of what has arrived: all that the pipe holds now, as of a job that has ended no more
// is read; but no more, as one that writes without end must leave time to look at the clock.
void read_lines(int file, std::string& text,
                const std::function<void(const std::string& line)>& take) {
  constexpr size_t longest_remark = 4096, longest_event = size_t{512} << 20;
  int held_bytes = 0;
  if (ioctl(file, FIONREAD, &held_bytes) != 0 || held_bytes <= 0) return;
  const size_t before = text.size();
  text.resize(before + held_bytes);
  const ssize_t count = read(file, text.data() + before, held_bytes);
  text.resize(before + std::max<ssize_t>(count, 0));
  take_lines(text, before, take);
  text.resize(std::min(text.size(), text.starts_with('{') ? longest_event : longest_remark));
}

// Throws InvalidReport for what cannot be merged with the runs of other jobs, or kept in a journal.
// One that is not complete may be of rank 0 alone where `some_will_do`.
void require_run_of_job(const Report& report, bool some_will_do) {
  if (report.arms.size() != 1 || report.arms[0].runs.size() != 1) {
    throw InvalidReport("its report is not of one run");
  }
  const Run& run = report.arms[0].runs[0];
  const int64_t told = std::ssize(run.ranks);
  const bool of_some = some_will_do && run.status != Status::complete && told < run.world_size;
  if (told == 0 || (told != run.world_size && !of_some)) {
    throw InvalidReport("its report lacks ranks");
  }
  require_consistent_runs(report);
}

}  // namespace

JobProcess::JobProcess(const std::vector<std::string>& command, const JobFolder* folder) {
  const std::vector<std::string> environment =
      environment_with(folder == nullptr ? std::vector<std::string>{} : folder->variables());
  const std::vector<char*> arguments = pointers_to(command), variables = pointers_to(environment);
  Pipe in, out, err, failure;
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    if (folder != nullptr) fcntl(folder->lifeline(), F_SETFD, 0);  // not closed by the exec
    become(arguments, variables, in.read(), out.write(), err.write(), failure.write(), parent);
  }
  int reason = errno;
  for (const int end : {in.take_read(), out.take_write(), err.take_write(), failure.take_write()}) {
    close(end);
  }
  if (pid_ < 0 || read(failure.read(), &reason, sizeof reason) == sizeof reason) {
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    throw std::runtime_error(command.at(0) + " cannot be started: " + std::strerror(reason));
  }
  if (folder != nullptr) last_report_file_ = folder->last_report();
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
    kill(-pid_, SIGKILL);  // processes that it may have left behind
    take_last_report();
  }
  if (!ended() && end_asked_ && Clock::now() - *end_asked_ > patience) kill(-pid_, SIGKILL);
}

void JobProcess::take_out(const std::string& line) {
  if (!line.starts_with('{')) return;  // of a library
  try {
    take_event(event_from_json(line));
  } catch (const InvalidReport& error) {
    take_err(std::string("a line of the job is no event that can be used: ") + error.what());
  }
}

void JobProcess::take_event(Event event) {
  if (event.report) require_run_of_job(*event.report, false);
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
  if (event.unix_seconds) {
    const double lag = unix_seconds() - *event.unix_seconds;
    last.clock_lag_seconds = std::min(lag, last.clock_lag_seconds.value_or(lag));
  }
  const bool moved = event.steps != last.progress.steps || event.phase != last.progress.phase;
  if (moved) last.stepped_at = last.heard_at;
  last.progress = std::move(event);
}

void JobProcess::take_last_report() {
  std::error_code ignored;  // what cannot be looked at is not there
  if (report_ || !std::filesystem::is_regular_file(last_report_file_, ignored)) return;
  try {
    Report report = read_report(last_report_file_);
    require_run_of_job(report, true);
    last_report_ = std::move(report);
  } catch (const InvalidReport& error) {
    take_err(std::string("the last report of the job cannot be used: ") + error.what());
  }
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

bool JobProcess::was_killed() const {
  return WIFSIGNALED(*status_) && WTERMSIG(*status_) != SIGABRT;
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
