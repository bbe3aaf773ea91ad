#include "bench/conductor.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <limits>

namespace nearmetal {
namespace {

constexpr int poll_milliseconds = 50;
constexpr std::chrono::milliseconds progress_period{500};

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Event progress_event(const TrainerProgress* progress, int64_t images_per_step,
                     const char* phase_without) {
  Event event;
  event.event = "progress";
  event.phase = phase_without;
  if (progress == nullptr) return event;
  event.steps = progress->steps_done.load();
  const int64_t first = progress->window_first_step.load();
  event.phase = first < 0 ? "warm-up" : "window";
  if (first < 0) return event;
  const int64_t measured = progress->window_measured.load();
  if (measured == progress->window_steps.load()) event.phase = "load";
  const double seconds = progress->window_seconds.load();
  if (seconds > 0) {
    event.images_per_second = static_cast<double>(measured * images_per_step) / seconds;
  }
  return event;
}

}  // namespace

Conductor::Conductor(std::ostream& out, int orders)
    : out_(out),
      orders_(orders),
      start_unix_seconds_(std::numeric_limits<double>::infinity()),
      listener_([this] { listen(); }),
      teller_([this] { tell_progress(); }) {}

Conductor::~Conductor() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  over_changed_.notify_all();
  listener_.join();
  teller_.join();
}

void Conductor::follow(const TrainerProgress& progress, int64_t images_per_step) {
  const std::lock_guard lock(mutex_);
  progress_ = &progress;
  images_per_step_ = images_per_step;
}

void Conductor::unfollow() {
  const std::lock_guard lock(mutex_);
  progress_ = nullptr;
  phase_ = "proof";
}

void Conductor::tell(const Event& event) {
  const std::string line = to_json_line(event);
  const std::lock_guard lock(out_mutex_);
  out_ << line << std::endl;
}

bool Conductor::may_open_window() const { return unix_seconds() >= start_unix_seconds_.load(); }

void Conductor::obey(const std::string& line) {
  const std::string start = std::string(start_order) + " ";
  if (line.starts_with(start)) {
    start_unix_seconds_ = std::strtod(line.c_str() + start.size(), nullptr);
  } else if (line == end_order) {
    may_end_ = true;
  } else if (line == stop_order) {
    must_stop_ = true;
  }
}

// A sweep that is gone cannot want the job any more.
void Conductor::listen() {
  std::string text;
  std::array<char, 256> bytes{};
  for (std::unique_lock lock(mutex_); !over_; lock.lock()) {
    lock.unlock();
    pollfd waiting{orders_, POLLIN, 0};
    if (poll(&waiting, 1, poll_milliseconds) <= 0) continue;
    const ssize_t count = read(orders_, bytes.data(), bytes.size());
    if (count <= 0) {
      must_stop_ = !may_end_;
      return;
    }
    text.append(bytes.data(), count);
    for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
      obey(text.substr(0, end));
      text.erase(0, end + 1);
    }
  }
}

void Conductor::tell_progress() {
  std::unique_lock lock(mutex_);
  while (!over_changed_.wait_for(lock, progress_period, [this] { return over_; })) {
    tell(progress_event(progress_, images_per_step_, phase_));
  }
}

Wish ConductedConsensus::agree(Wish mine) {
  if (mine.ready && !told_) {
    Event event;
    event.event = in_window_ ? "measured" : "ready";
    conductor_.tell(event);
    told_ = true;
  }
  mine.ready = mine.ready && (in_window_ ? conductor_.may_end() : conductor_.may_open_window());
  mine.stop = mine.stop || conductor_.must_stop();
  const Wish agreed = inner_.agree(mine);
  if (agreed.ready) {
    in_window_ = true;
    told_ = false;
  }
  return agreed;
}

}  // namespace nearmetal
