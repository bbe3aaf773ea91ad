#include "comm/watchdog.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <mutex>

#include "base/descriptor.h"
#include "base/errors.h"
#include "base/text.h"

namespace nearmetal {
namespace {

constexpr std::chrono::milliseconds period{500};
constexpr std::chrono::seconds time_for_others{1};  // to tell and save what they have
constexpr int64_t looks_of_silence = 4;             // after which a rank is said not to run
constexpr int64_t times_while_all_run = 5;
constexpr double stop_patience_seconds = 20;  // as a sweep has with a job

int64_t looks_in(double seconds) {
  return std::max<int64_t>(1, static_cast<int64_t>(seconds * 1000 / period.count()));
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
  const bool shared =
      file.is_open() && posix_fallocate(file.number(), 0, static_cast<off_t>(bytes)) == 0;
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
           shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, shared ? file.number() : -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

bool ends_within(std::chrono::milliseconds period, const std::stop_token& over) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any stopped;
  return stopped.wait_for(lock, over, period, [&] { return over.stop_requested(); });
}

// A file begins with zeros: then nobody was there.
struct alignas(64) Watchdog::Signs {
  std::atomic<int64_t> process;
  std::atomic<int64_t> beats;
  std::atomic<bool> waits;  // in a call of MPI
};

Watchdog::Watchdog(double patience_seconds, const std::atomic<int>& stop,
                   std::function<void(const std::string& why)> tell)
    : patience_seconds_(patience_seconds),
      stop_(stop),
      tell_(std::move(tell)),
      rank_(launched_rank()),
      seen_(launched_processes().value_or(0)) {
  if (seen_.size() < 2 || rank_ >= seen_.size()) return;
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

void Watchdog::watch(const std::stop_token& over) {
  signs_[rank_].process = getpid();
  do {
    ++looks_;
    show_signs();
    if (is_over()) end();
  } while (!ends_within(period, over));
}

// The loop that is timed writes nothing here: a page of a file may have to wait for its disk.
void Watchdog::show_signs() {
  const CallCounts* counts = calls_;
  const int64_t ended = counts == nullptr ? 0 : counts->ended.load();
  const int64_t begun = counts == nullptr ? 0 : counts->begun.load();
  signs_[rank_].waits = counts == nullptr || begun > ended;
  signs_[rank_].beats.fetch_add(1);
  for (size_t rank = 0; rank < signs_.size(); ++rank) {
    const int64_t beats = signs_[rank].beats;
    if (beats != seen_[rank].beats) seen_[rank] = {beats, looks_};
  }
  if (begun + ended != known_calls_) last_call_ = looks_;
  known_calls_ = begun + ended;
  if (stop_ != 0 && stopped_at_ == 0) stopped_at_ = looks_;
}

// Whether it has shown a sign in that many looks.
bool Watchdog::runs(size_t rank, int64_t looks) const {
  return signs_[rank].process != 0 && looks_ - seen_[rank].look < looks;
}

bool Watchdog::is_over() const {
  const int64_t patience = looks_in(patience_seconds_);
  bool all_run = calls_ != nullptr;
  for (size_t rank = 0; rank < signs_.size(); ++rank) {
    all_run = all_run && (signs_[rank].process == 0 || runs(rank, patience));
  }
  int64_t limit = all_run ? times_while_all_run * patience : patience;
  if (stopped_at_ > 0) limit = std::min(limit, looks_in(stop_patience_seconds));
  return looks_ - std::max(last_call_, stopped_at_) >= limit;
}

// Of a job on several hosts the ranks that are not there are those of the others.
std::string Watchdog::why() const {
  const char* here = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  const bool one_host = here != nullptr && here == std::to_string(signs_.size());
  std::vector<std::string> silent, busy;
  for (size_t rank = 0; rank < signs_.size(); ++rank) {
    const int64_t process = signs_[rank].process;
    const std::string name = "rank " + std::to_string(rank) +
                             (process == 0 ? "" : " (process " + std::to_string(process) + ")");
    if (process == 0 && (!one_host || calls_ != nullptr)) continue;
    if (!runs(rank, looks_of_silence)) silent.push_back(name);
    if (runs(rank, looks_of_silence) && !signs_[rank].waits) busy.push_back(name);
  }
  const std::vector<std::string>& missing = silent.empty() ? busy : silent;
  const int64_t looks = looks_ - std::max(last_call_, stopped_at_);
  const double seconds = static_cast<double>(looks * period.count()) / 1000;
  const std::string beginning =
      "gave up after " + significant(seconds, 2) + " s on host " + host_name() + ": ";
  if (missing.empty() && one_host) return beginning + "all ranks wait for one another in MPI";
  return beginning + (missing.empty() ? "ranks of another host" : joined(missing)) +
         (calls_ == nullptr ? " did not join (--join-timeout)"
          : silent.empty()  ? " kept the others waiting"
                            : " gave no sign of life");
}

void Watchdog::end() {
  why_ = why();
  ends_ = true;
  size_t first = 0;  // rank that runs here
  while (first < rank_ && !runs(first, looks_of_silence)) ++first;
  if (first == rank_) tell_(why_);
  std::this_thread::sleep_for(time_for_others);
  std::_Exit(stopped_at_ > 0 ? 128 + stop_ : static_cast<int>(ExitCode::timed_out));
}

}  // namespace nearmetal
