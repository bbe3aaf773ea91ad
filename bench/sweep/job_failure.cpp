#include <algorithm>
#include <charconv>
#include <optional>

#include "bench/cli/process.h"
#include "bench/sweep/job_process.h"
#include "reports/document/metric.h"

namespace nearmetal {
namespace {

constexpr double silence_seconds = 2;  // ranks tell of their progress twice a second

// With the stage, and the step that comes after those that are done, counted from 0, where there
// are such.
std::string place_of(const Event& progress) {
  if (!progress.phase) return "before it said anything";
  return (progress.stage ? *progress.stage + ", " : "") + to_string(*progress.phase) +
         (takes_steps(progress) ? ", step " + std::to_string(progress.steps) : "");
}

std::string place_of_rank(const JobProcess& job, int64_t rank) {
  const auto known = job.heartbeats().find(rank);
  return known == job.heartbeats().end() ? "before it said anything"
                                         : place_of(known->second.progress);
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

// The last line of a launcher, or of ssh below it, before it sums up between lines of dashes; where
// it says nothing before them, the first line after.
std::optional<std::string> said_at_the_end(const JobProcess& job) {
  std::optional<std::string> last;
  bool summed_up = false;
  for (const std::string& line : job.errors()) {
    if (line.find_first_not_of(' ') == line.npos || line == stop_remark) continue;
    const bool rule = line.find_first_not_of('-') == line.npos;
    summed_up = summed_up || rule;
    if (summed_up && last) break;
    if (!rule) last = line.substr(line.find_first_not_of(' '));
  }
  return last;
}

// The words of a process before somebody kills it are no reason.
std::string last_words(const JobProcess& job) {
  if (job.was_killed()) return "it was killed";
  std::optional<std::string> words = said_first(job);
  if (!words) words = said_at_the_end(job);
  const bool told_to_end = std::ranges::find(job.errors(), stop_remark) != job.errors().end();
  return words.value_or(told_to_end ? "it was told to end" : "it said nothing");
}

}  // namespace

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
  failure.text += " (" + job.ending() + "; " + place_of_rank(job, rank) + ")";
  return failure;
}

std::string place_of_standstill(const JobProcess& job) {
  if (job.seconds_of_silence() <= silence_seconds) return " (" + place_of(job.progress()) + ")";
  const auto& ranks = job.heartbeats();
  const auto first = std::min_element(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) {
    return a.second.heard_at < b.second.heard_at;
  });
  const Event& last_word = first->second.progress;
  return ": rank " + std::to_string(last_word.rank) + " (" + last_word.host + ") is silent (" +
         place_of(last_word) + ")";
}

}  // namespace nearmetal
