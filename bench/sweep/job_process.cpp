#include "bench/sweep/job_process.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "base/errors.h"
#include "base/pattern.h"
#include "base/text.h"
#include "bench/cli/process.h"
#include "bench/environment/system_files.h"
#include "bench/run/sweep_control.h"
#include "comm/launch/launch_plan.h"
#include "comm/world.h"
#include "models/probe.h"
#include "reports/document/metric.h"
#include "reports/json/consistency.h"
#include "reports/json/report_files.h"

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

constexpr size_t most_errors = 100;
constexpr double patience_seconds = 5;  // of an end that was asked for
constexpr double silence_seconds = 2;   // ranks tell of their progress twice a second

// Of one of the heartbeats.
constexpr auto heard_at = [](const auto& rank) { return rank.second.heard_at; };

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
  const int64_t reported = std::ssize(run.ranks);
  const bool of_some = some_will_do && run.status != Status::complete && reported < run.world_size;
  if (reported == 0 || (reported != run.world_size && !of_some)) {
    throw InvalidReport("its report lacks ranks");
  }
  require_consistent_runs(report);
}

// Whether a rank that tells of this takes steps, and counts them.
bool takes_steps(const Event& progress) {
  const std::optional<RankPhase> phase = progress.phase;
  return phase == RankPhase::warm_up || phase == RankPhase::window || phase == RankPhase::load;
}

// With the stage, and the step that comes after those that are done, counted from 0, where there
// are such.
std::string place_of(const Event& progress) {
  if (!progress.phase) return "before it said anything";
  return (progress.stage ? *progress.stage + ", " : "") + to_string(*progress.phase) +
         (takes_steps(progress) ? ", step " + std::to_string(progress.steps) : "");
}

// What nobody here can end.
std::string left_on_other_hosts(const JobProcess& job) {
  std::vector<std::string> hosts;
  for (const auto& [rank, last] : job.heartbeats()) {
    if (last.progress.host != host_name()) add_new(hosts, last.progress.host);
  }
  if (!job.was_killed() || hosts.empty()) return "";
  return "; what the launcher started on " + joined(hosts) + " may go on there for a while";
}

// The number after "rank " in words of standard error; 0 where there is none.
int64_t rank_in(const std::string& text) {
  const std::string word = "rank ";
  const size_t at = text.find(word);
  int64_t rank = 0;
  if (at != text.npos) {
    std::from_chars(text.data() + at + word.size(), text.data() + text.size(), rank);
  }
  return rank;
}

// The message of mpirun about a process that a signal ended, which therefore sent no event: "mpirun
// noticed that process rank 1 with PID 7 on node vm0 exited on signal 9", of Open MPI 5 in two
// lines. The others fail because that process is gone, and may have said so before.
std::optional<std::string> killed_process(const JobProcess& job) {
  std::optional<std::string> message;
  for (const std::string& line : job.errors()) {
    if (message) return message->ends_with(" on") ? *message + " " + line : *message;
    const size_t process = line.find("process rank ");
    if (process != line.npos && line.find("noticed that") < process) message = line.substr(process);
  }
  return message;
}

// The first words of a process that died before it could send an event.
std::optional<std::string> said_first(const JobProcess& job) {
  const std::string own = "nearmetal: ";
  for (const std::string& line : job.errors()) {
    const bool remark = line.starts_with(own + "device");
    if (line.starts_with(own) && !remark) return line.substr(own.size());
  }
  return std::nullopt;
}

// "[time] [host:process:thread] select.c:549 UCX  ERROR text", as each version of UCX writes it
// (src/ucs/debug/log.c). Open MPI says no more than that it did not start.
std::string said_by_ucx(const JobProcess& job) {
  static const Pattern error(R"(\bUCX +ERROR +(\S.*))");
  for (const std::string& line : job.errors()) {
    if (const auto found = error.groups_in(line); !found.empty()) return "UCX: " + found[1];
  }
  return "";
}

// Remarks of ssh, or of Open MPI's starter of ssh, which come whether or not it succeeds.
bool is_remark(const std::string& line) {
  static const Pattern remarks(
      R"(^((\[\S+\] plm:[a-z]+: )?Warning:|debug[123]:|Pseudo-terminal |\*\* ))");
  return line == stop_remark || remarks.is_in(line);
}

// The first sentence of what a launcher sums up, with the lines that name a host or a file, as
// "Node: vm1".
std::string sentence_of(const std::vector<std::string>& lines) {
  static const Pattern names(R"(^(Node|Executable|Host|Application): +\S)");
  std::string sentence;
  std::vector<std::string> named;
  bool in_sentence = true;
  for (const std::string& line : lines) {
    if (names.is_in(line)) {
      const size_t colon = line.find(':');
      named.push_back(line.substr(0, colon + 2) +
                      line.substr(line.find_first_not_of(' ', colon + 1)));
      continue;
    }
    in_sentence = in_sentence && !line.empty() && sentence.find(". ") == sentence.npos;
    if (in_sentence) sentence += (sentence.empty() ? "" : " ") + line;
  }
  if (const size_t end = sentence.find(". "); end != sentence.npos) sentence.resize(end + 1);
  return sentence + (named.empty() ? "" : " " + joined(named));
}

// The last line of a launcher, or of ssh below it, before it sums up between lines of dashes; what
// it sums up, where nothing was said before, or where that names what could not be started.
std::optional<std::string> said_at_the_end(const JobProcess& job) {
  std::optional<std::string> before;
  std::vector<std::string> summary;
  int rules = 0;
  for (const std::string& line : job.errors()) {
    const size_t begin = line.find_first_not_of(' ');
    const std::string words = begin == line.npos ? "" : line.substr(begin);
    const bool is_rule = !words.empty() && words.find_first_not_of('-') == words.npos;
    rules += is_rule ? 1 : 0;
    if (rules == 2) break;
    if (rules == 1 && !is_rule) summary.push_back(words);
    if (rules == 0 && !words.empty() && !is_remark(words)) before = words;
  }
  while (!summary.empty() && summary.front().empty()) summary.erase(summary.begin());
  if (summary.empty()) return before;
  const bool names_it = summary.front().starts_with("mpirun was unable to") ||
                        summary.front().starts_with("prterun was unable to");
  return before && !names_it ? before : sentence_of(summary);
}

// The words of a process before somebody kills it are no reason.
std::string last_words(const JobProcess& job) {
  if (job.was_killed()) return "it was killed";
  std::optional<std::string> words = said_first(job);
  if (!words) words = said_at_the_end(job);
  const bool asked_to_end = std::ranges::find(job.errors(), stop_remark) != job.errors().end();
  return words.value_or(asked_to_end ? "it was told to end" : "it said nothing");
}

}  // namespace

// The keeper comes first: a process that is killed between the two leaves no folder. Where there is
// no /dev/shm, Open MPI finds another place.
JobFolder::JobFolder(bool shares_memory)
    : folder_(temporary_folder() / new_name()),
      shared_memory_(shares_memory ? fs::path("/dev/shm") / folder_.filename() : ""),
      keeper_(clearing_script, shares_memory
                                   ? std::vector{folder_.string(), shared_memory_.string()}
                                   : std::vector{folder_.string()}) {
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

JobProcess::JobProcess(const std::vector<std::string>& command, const JobFolder* folder) {
  Pipe in, out, err;
  ChildOptions options{.in = in.read.number(),
                       .out = out.write.number(),
                       .err = err.write.number(),
                       .signal_at_our_end = SIGTERM,
                       .own_session = true};
  if (folder != nullptr) {
    options.variables = folder->variables();
    options.kept = folder->lifeline();
    last_report_file_ = folder->last_report();
  }
  pid_ = start_child(command, options);
  in_ = std::move(in.write);
  out_ = std::move(out.read);
  err_ = std::move(err.read);
  for (const int end : {this->out(), this->err()}) fcntl(end, F_SETFL, O_NONBLOCK);
}

JobProcess::~JobProcess() {
  if (!ended()) kill_child(pid_);
}

void JobProcess::update() {
  int status = 0;
  const bool over = !ended() && waitpid(pid_, &status, WNOHANG) == pid_;
  // Errors first: where another rank failed, rank 0 may say what follows from that.
  read_lines(err(), err_text_, [this](const std::string& line) { take_err(line); });
  read_lines(out(), out_text_, [this](const std::string& line) { take_out(line); });
  if (over) {
    status_ = status;
    kill_session(pid_);  // processes that it may have left behind
    take_last_report();
  }
  if (!ended() && end_asked_ && steady_seconds() - *end_asked_ > patience_seconds) {
    kill(-pid_, SIGKILL);
  }
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
  last.heard_at = steady_seconds();
  if (event.unix_seconds) {
    const double lag = unix_seconds() - *event.unix_seconds;
    last.clock_lag_seconds = std::min(lag, last.clock_lag_seconds.value_or(lag));
  }
  const bool moved = event.steps != last.progress.steps || event.phase != last.progress.phase;
  if (moved) last.stepped_at = last.heard_at;
  last.progress = std::move(event);
}

void JobProcess::take_last_report() {
  if (report_ || !is_there(last_report_file_)) return;
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
  [[maybe_unused]] const ssize_t reported = write(in_.number(), text.data(), text.size());
}

void JobProcess::end() {
  if (ended() || end_asked_) return;
  end_asked_ = steady_seconds();
  kill(-pid_, SIGTERM);
}

double JobProcess::seconds_of_silence() const {
  if (heartbeats_.empty()) return 0;
  const auto [first, last] = std::ranges::minmax_element(heartbeats_, {}, heard_at);
  return heard_at(*last) - heard_at(*first);
}

double JobProcess::seconds_without_step() const {
  double longest = 0;
  for (const auto& [rank, last] : heartbeats_) {
    if (!takes_steps(last.progress) || last.progress.steps == 0) continue;
    longest = std::max(longest, steady_seconds() - last.stepped_at);
  }
  return longest;
}

Failure failure_of_job(const JobProcess& job) {
  Failure failure{{}, job.exit_code(), ""};
  int64_t rank = 0;
  const std::optional<std::string> killed = killed_process(job);
  if (!killed && job.failure()) {
    rank = job.failure()->rank;
    failure = *job.failure()->failure;
  } else if (!killed && job.report() && job.report()->status != Status::complete) {
    failure.text = status_text(job.report()->arms.at(0).runs.at(0));
  } else {
    failure.text = killed ? *killed : last_words(job);
    rank = rank_in(failure.text);
  }
  if (const std::string ucx = said_by_ucx(job); !ucx.empty()) failure.text += "; " + ucx;
  failure.text +=
      " (" + job.ending() + "; " + place_of(job.progress(rank)) + ")" + left_on_other_hosts(job);
  return failure;
}

std::string place_of_standstill(const JobProcess& job) {
  if (job.seconds_of_silence() <= silence_seconds) return " (" + place_of(job.progress()) + ")";
  const auto most_silent = std::ranges::min_element(job.heartbeats(), {}, heard_at);
  const Event& last_word = most_silent->second.progress;
  return ": rank " + std::to_string(last_word.rank) + " (" + last_word.host + ") is silent (" +
         place_of(last_word) + ")";
}

}  // namespace nearmetal
