#include "comm/watchdog.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <limits>
#include <optional>

#include "base/descriptor.h"
#include "base/errors.h"
#include "base/text.h"

namespace nearmetal {
namespace {

constexpr std::chrono::milliseconds period{500};
constexpr double stop_patience_seconds = 20;  // as a sweep has with a job
constexpr int64_t looks_of_silence = 4;       // of a rank that does not run
constexpr int64_t times_outside_steps = 5, times_longest_step = 10;
constexpr std::chrono::seconds time_for_others{1};  // to tell and save what they have

int64_t looks_in(double seconds) { return static_cast<int64_t>(seconds * 1000 / period.count()); }

bool is_over_within(std::chrono::milliseconds time, const std::stop_token& over) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any told;
  return told.wait_for(lock, over, time, [&] { return over.stop_requested(); });
}

// How many ranks the launcher says that it started on this host.
std::optional<int64_t> ranks_here() {
  const char* text = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  return text == nullptr ? std::nullopt : std::optional(std::strtoll(text, nullptr, 10));
}

// Of all ranks on this host. Memory of this process alone where the launcher has no folder, or
// nothing can be written there.
void* shared_page(size_t bytes) {
  const char* folder = std::getenv("PMIX_SERVER_TMPDIR");
  const char* job = std::getenv("PMIX_NAMESPACE");
  Descriptor file;
  if (folder != nullptr && job != nullptr) {
    const std::string path = std::string(folder) + "/nearmetal-ranks-" + job;
    file = Descriptor(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  }
  const bool shared = file.is_open() && ftruncate(file.number(), static_cast<off_t>(bytes)) == 0;
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
           shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, shared ? file.number() : -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

// A file begins with zeros: then nobody was there.
struct alignas(64) Watchdog::Signs {
  std::atomic<int64_t> process;
  std::atomic<int64_t> beats;
  std::atomic<int64_t> waits;  // 1: in a call of MPI
  std::atomic<int64_t> steps;
};

Watchdog::Watchdog(double patience_seconds, const std::atomic<int>& stop, Tell tell)
    : patience_seconds_(patience_seconds),
      stop_(stop),
      tell_(std::move(tell)),
      rank_(launched_rank()),
      seen_(std::max<int64_t>(launched_processes().value_or(0), 0)) {
  if (rank_ >= std::ssize(seen_)) return;
  void* page = shared_page(seen_.size() * sizeof(Signs));
  if (page == nullptr) return;
  signs_ = {static_cast<Signs*>(page), seen_.size()};
  thread_ = std::jthread([this](const std::stop_token& over) { watch(over); });
}

Watchdog::~Watchdog() {
  if (signs_.empty()) return;
  thread_.request_stop();
  thread_.join();
  signs_[rank_].process = 0;
  munmap(signs_.data(), signs_.size_bytes());
}

void Watchdog::before_the_end(Tell save) {
  const std::lock_guard lock(save_mutex_);
  save_ = std::move(save);
}

void Watchdog::watch(const std::stop_token& over) {
  signs_[rank_].process = getpid();
  do {
    ++looks_;
    show_signs();
    const std::string why = why_to_end();
    if (!why.empty()) end(why);
  } while (!is_over_within(period, over));
}

// The loop that is timed writes nothing here: a page of a file may have to wait for its disk.
void Watchdog::show_signs() {
  const CallCounts* calls = calls_;
  const int64_t begun = calls == nullptr ? 0 : calls->begun.load();
  const int64_t ended = calls == nullptr ? 0 : calls->ended.load();
  const std::atomic<int64_t>* counter = steps_;
  const int64_t steps = counter == nullptr ? 0 : counter->load();
  Signs& own = signs_[rank_];
  own.waits = begun > ended || calls == nullptr ? 1 : 0;
  own.steps = steps;
  own.beats.fetch_add(1);
  for (size_t rank = 0; rank < signs_.size(); ++rank) {
    const int64_t beats = signs_[rank].beats;
    if (beats != seen_[rank].beats) seen_[rank] = {beats, looks_};
  }
  if (const int64_t activity = begun + ended + steps; activity != activity_) {
    if (steps > 0) longest_ = std::max(longest_, looks_ - last_change_);
    activity_ = activity;
    last_change_ = looks_;
  }
  if (stop_ != 0 && stopped_at_ == 0) stopped_at_ = looks_;
}

std::string Watchdog::why_to_end() {
  const int64_t patience = looks_in(patience_seconds_),
                stop_patience = looks_in(stop_patience_seconds);
  const bool stops = stopped_at_ > 0, in_steps = signs_[rank_].steps > 0;
  const int64_t waited = looks_ - std::max(last_change_, stopped_at_);
  if (calls_ == nullptr) return waited >= patience ? who_has_not_joined() : "";
  const int64_t silence = stops ? std::min(patience, stop_patience) : patience;
  const bool any_silent = std::ranges::any_of(
      ranks_where([&](int64_t rank) { return is_there(rank) && !runs(rank, silence); }),
      [](int64_t) { return true; });
  int64_t limit =
      in_steps ? std::max(patience, times_longest_step * longest_) : times_outside_steps * patience;
  if (stops) limit = std::min(limit, stop_patience);
  return waited >= (any_silent ? silence : limit) ? who_stands_still() : "";
}

bool Watchdog::is_there(int64_t rank) const { return signs_[rank].process != 0; }

// Whether it has shown a sign in that many looks.
bool Watchdog::runs(int64_t rank, int64_t looks) const {
  return is_there(rank) && looks_ - seen_[rank].look < looks;
}

std::vector<int64_t> Watchdog::ranks_where(const std::function<bool(int64_t rank)>& holds) const {
  std::vector<int64_t> found;
  for (int64_t rank = 0; rank < std::ssize(signs_); ++rank) {
    if (holds(rank)) found.push_back(rank);
  }
  return found;
}

// "rank 1 (vm, process 4711)", or the same of several.
std::string Watchdog::text_of(const std::vector<int64_t>& ranks) const {
  std::vector<std::string> texts;
  for (const int64_t rank : ranks) {
    const int64_t process = signs_[rank].process;
    texts.push_back("rank " + std::to_string(rank) + " (" + host_name() +
                    (process == 0 ? "" : ", process " + std::to_string(process)) + ")");
  }
  return joined(texts);
}

std::string Watchdog::who_has_not_joined() const {
  const auto absent = ranks_where([&](int64_t rank) { return !runs(rank, looks_of_silence); });
  const int64_t here = std::ssize(signs_) - std::ssize(absent);
  const std::optional<int64_t> expected = ranks_here();
  std::string who = "not all ranks have";
  if (expected == std::ssize(signs_)) {
    who = text_of(absent) + (absent.size() == 1 ? " has" : " have");
  } else if (expected && here < *expected) {
    who = std::to_string(*expected - here) + " of the " + std::to_string(*expected) +
          " ranks of host " + host_name() + ", where " +
          text_of(ranks_where([&](int64_t rank) { return runs(rank, looks_of_silence); })) +
          " waits, have";
  } else if (expected) {
    who = "all ranks of host " + host_name() + " wait, but those of another host have";
  }
  // "has not", "have not"
  return who + " not joined the others within " + significant(patience_seconds_, 3) +
         " s (--join-timeout)";
}

std::string Watchdog::who_stands_still() const {
  const std::string time =
      " for " +
      significant(static_cast<double>((looks_ - last_change_) * period.count()) / 1000, 2) + " s";
  const auto silent =
      ranks_where([&](int64_t rank) { return is_there(rank) && !runs(rank, looks_of_silence); });
  if (!silent.empty()) return text_of(silent) + " gave no sign of life" + time;
  const auto busy =
      ranks_where([&](int64_t rank) { return is_there(rank) && signs_[rank].waits == 0; });
  if (signs_[rank_].waits != 0 && !busy.empty()) {
    return text_of(busy) + " kept the others waiting" + time;
  }
  int64_t fewest = std::numeric_limits<int64_t>::max();
  for (const int64_t rank : ranks_where([&](int64_t rank) { return is_there(rank); })) {
    fewest = std::min<int64_t>(fewest, signs_[rank].steps);
  }
  const auto behind =
      ranks_where([&](int64_t rank) { return is_there(rank) && signs_[rank].steps == fewest; });
  const std::string where =
      fewest == 0 ? "outside of its steps" : "in step " + std::to_string(fewest + 1);
  return "nothing happened" + time + ": " + text_of(behind) + " stood still " + where;
}

void Watchdog::end(const std::string& why) {
  {
    const std::lock_guard lock(save_mutex_);
    if (save_) save_(why);
  }
  const auto running = ranks_where([&](int64_t rank) { return runs(rank, looks_of_silence); });
  if (running.empty() || running.front() == rank_) tell_(why);
  std::this_thread::sleep_for(time_for_others);
  std::_Exit(stopped_at_ > 0 ? 128 + stop_ : static_cast<int>(ExitCode::timed_out));
}

}  // namespace nearmetal
