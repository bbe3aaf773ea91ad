#include "bench/run/teller.h"

#include <chrono>

#include "bench/run/together.h"
#include "reports/document/metric.h"

namespace nearmetal {
namespace {

constexpr std::chrono::milliseconds progress_period{500};

Event progress_event(const TrainerProgress* progress, int64_t samples_per_step, SampleUnit unit,
                     RankPhase phase_without) {
  Event event;
  event.sample = unit;
  event.kind = EventKind::progress;
  event.phase = phase_without;
  if (progress == nullptr) return event;
  event.steps = progress->steps_done.load();
  const int64_t first = progress->window_first_step.load();
  event.phase = first < 0 ? RankPhase::warm_up : RankPhase::window;
  if (first < 0) return event;
  const int64_t measured = progress->window_measured.load();
  if (measured == progress->window_steps.load()) event.phase = RankPhase::load;
  const double seconds = progress->window_seconds.load();
  if (seconds > 0) {
    event.samples_per_second =
        throughput_of(static_cast<double>(measured * samples_per_step), seconds);
  }
  return event;
}

}  // namespace

Teller::Teller(std::ostream& out, int rank)
    : out_(out), rank_(rank), host_(host_name()), thread_([this] { tell_progress(); }) {}

Teller::~Teller() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  over_changed_.notify_all();
  thread_.join();
}

void Teller::follow(const TrainerProgress& progress, int64_t samples_per_step, SampleUnit unit) {
  const std::lock_guard lock(mutex_);
  progress_ = &progress;
  samples_per_step_ = samples_per_step;
  unit_ = unit;
}

void Teller::unfollow() {
  const std::lock_guard lock(mutex_);
  progress_ = nullptr;
  phase_ = RankPhase::proof;
}

// In one piece, since others may write to the same stream.
void Teller::tell(Event event) {
  event.rank = rank_;
  event.host = host_;
  const std::string line = to_json_line(event) + "\n";
  const std::lock_guard lock(out_mutex_);
  out_ << line << std::flush;
}

void Teller::tell_progress() {
  std::unique_lock lock(mutex_);
  do {
    tell(progress_event(progress_, samples_per_step_, unit_, phase_));
  } while (!over_changed_.wait_for(lock, progress_period, [this] { return over_; }));
}

}  // namespace nearmetal
