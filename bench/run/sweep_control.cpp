#include "bench/run/sweep_control.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <utility>

#include "base/atomic_file.h"
#include "bench/cli/process.h"
#include "bench/environment/leave_out_host_info.h"
#include "bench/environment/system_files.h"
#include "bench/run/rank_run.h"
#include "comm/launch/launch_plan.h"
#include "reports/document/metric.h"
#include "reports/json/json.h"

namespace nearmetal {
namespace {

constexpr std::chrono::milliseconds redraw_period{250};
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
    event.samples_per_second = static_cast<double>(measured * samples_per_step) / seconds;
  }
  return event;
}

class ControlledConsensus : public Consensus {
 public:
  ControlledConsensus(Consensus& inner, SweepControl& control) : inner_(inner), control_(control) {}

  StepVote agree(StepVote mine) override {
    if (mine.ready && !reported_) {
      Event event;
      event.kind = in_window_ ? EventKind::measured : EventKind::ready;
      control_.reporter().report(event);
      reported_ = true;
    }
    mine.ready = mine.ready && (in_window_ ? control_.may_end() : control_.may_open_window());
    mine.stop = mine.stop || control_.must_stop();
    const StepVote agreed = inner_.agree(mine);
    if (agreed.ready) {
      in_window_ = true;
      reported_ = false;
    }
    return agreed;
  }
  int64_t agree_steps(int64_t mine) override { return inner_.agree_steps(mine); }

 private:
  Consensus& inner_;
  SweepControl& control_;
  bool in_window_ = false;
  bool reported_ = false;  // whether this rank reported that it is ready
};

TrainerResult result_so_far(const TrainerProgress& progress) {
  TrainerResult found;
  found.stopped = true;
  found.steps = progress.recorded.copy();
  if (found.steps.empty()) return found;
  found.first_step_end = progress.first_step_end;
  const int64_t first = progress.window_first_step.load();
  if (first < 0 || first >= std::ssize(found.steps)) return found;
  found.warm_up = progress.warm_up;
  found.window_first_step = first;
  found.window_steps = progress.window_steps.load();
  found.window_start = progress.window_start;
  found.host_window_seconds = progress.window_seconds.load();
  return found;
}

// Ranks that exchange gradients take the same steps; of others nothing is known here.
void mark_other_ranks_unknown(const RunConfig& config, Run& run) {
  if (run.world_size == 1) return;
  if (run.status == Status::partial) {
    run.failure =
        "interrupted; known of rank 0 alone, as the others were slow to report what they measured";
  }
  const Unknown unknown{"known of rank 0 alone"};
  run.peak_flops_per_second = unknown;
  if (!run.window || !in_step(config, run.world_size)) {
    run.window = unknown;
    return set_throughput(unknown, run);
  }
  run.window.value->samples *= replicas_of(config, run.world_size);
  set_throughput(throughput_of(*run.window), run);
}

// None before the first step. `failure`: why the job ends, null where it was stopped.
std::optional<Report> report_so_far(const RankTask& task, const std::string* failure) {
  if (!task.so_far.is_prepared) return std::nullopt;
  RankResult result;
  result.prepared = task.so_far.prepared;
  result.trained = result_so_far(task.so_far.progress);
  if (result.trained->steps.empty()) return std::nullopt;
  result.first_step_end_seconds = task.context.clock.seconds_at(result.trained->first_step_end);
  Report report = make_rank_report(task.request, task.device, task.start, result);
  Run& run = report.arms.at(0).runs.at(0);
  mark_other_ranks_unknown(task.device.config, run);
  if (failure != nullptr) fail_run(*failure, run);
  report.status = run.status;
  report.exit_code = static_cast<int>(exit_code_of(
      report.status, failure != nullptr ? ExitCode::timed_out : ExitCode::ok, task.context.stop));
  // The sweep needs the names of hosts to merge its jobs.
  const RunRequest& request = task.request;
  if (request.config.no_host_info && !request.conducted) leave_out_host_info(report);
  return report;
}

}  // namespace

std::string progress_text(const TrainerProgress& progress, int64_t samples_per_step,
                          SampleUnit unit) {
  const int64_t done = progress.steps_done.load();
  const int64_t first = progress.window_first_step.load();
  if (first < 0) return "warm-up: step " + std::to_string(done);
  const int64_t steps = progress.window_steps.load();
  const int64_t measured = progress.window_measured.load();
  std::string text = "step " + std::to_string(measured) + " of " + std::to_string(steps);
  const double seconds = progress.window_seconds.load();
  if (measured < 1 || seconds <= 0) return text;
  const auto steps_per_second = static_cast<double>(measured) / seconds;
  const auto rounded = [](double value) { return std::to_string(std::llround(value)); };
  return text + ", " + rounded(static_cast<double>(samples_per_step) * steps_per_second) + " " +
         words_of(unit).rate + ", " +
         rounded(static_cast<double>(steps - measured) / steps_per_second) + " s left";
}

std::jthread show_progress(const Terminal& terminal, const TrainerProgress& progress,
                           int64_t samples_per_step, SampleUnit unit) {
  return std::jthread([&terminal, &progress, samples_per_step, unit](const std::stop_token& over) {
    while (!ends_within(redraw_period, over)) {
      terminal.show_progress(progress_text(progress, samples_per_step, unit));
    }
    terminal.clear_progress();
  });
}

ProgressReporter::ProgressReporter(std::ostream& out, int rank, const std::string& stage)
    : out_(out),
      rank_(rank),
      host_(host_name()),
      stage_(stage.empty() ? std::nullopt : std::optional(stage)),
      thread_([this](const std::stop_token& over) { report_progress(over); }) {}

ProgressReporter::Following ProgressReporter::follow(const TrainerProgress& progress,
                                                     int64_t samples_per_step, SampleUnit unit) {
  const std::lock_guard lock(mutex_);
  progress_ = &progress;
  samples_per_step_ = samples_per_step;
  unit_ = unit;
  return Following(this);
}

void ProgressReporter::StopFollowing::operator()(ProgressReporter* reporter) const {
  const std::lock_guard lock(reporter->mutex_);
  reporter->progress_ = nullptr;
  reporter->phase_ = RankPhase::proof;
}

void ProgressReporter::stay() {
  const std::lock_guard lock(mutex_);
  last_ = progress_event(progress_, samples_per_step_, unit_, phase_);
}

// In one piece, since others may write to the same stream.
void ProgressReporter::report(Event event) {
  event.rank = rank_;
  event.host = host_;
  event.stage = stage_;
  event.unix_seconds = unix_seconds();
  const std::string line = to_json_line(event) + "\n";
  const std::lock_guard lock(out_mutex_);
  out_ << line << std::flush;
}

void ProgressReporter::report_progress(const std::stop_token& over) {
  do {
    const std::lock_guard lock(mutex_);
    report(last_ ? *last_ : progress_event(progress_, samples_per_step_, unit_, phase_));
  } while (!ends_within(progress_period, over));
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

SweepControl::SweepControl(ProgressReporter& reporter, int orders)
    : reporter_(reporter),
      orders_(orders),
      start_unix_seconds_(std::numeric_limits<double>::infinity()),
      listener_([this](const std::stop_token& over) { listen(over); }) {}

bool SweepControl::may_open_window() const { return unix_seconds() >= start_unix_seconds_.load(); }

void SweepControl::obey(const std::string& line) {
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
void SweepControl::listen(const std::stop_token& over) {
  std::string text;
  std::array<char, 256> bytes{};
  while (!over.stop_requested()) {
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

std::unique_ptr<Consensus> make_controlled(Consensus& inner, SweepControl& control) {
  return std::make_unique<ControlledConsensus>(inner, control);
}

Destination last_report_file() {
  const char* const file = std::getenv(last_report_variable);
  if (file == nullptr || !is_there(std::filesystem::path(file).parent_path())) return {};
  return {.file = file, .replace = true};
}

LastReport::LastReport(const RankTask& task, Destination destination,
                       std::chrono::milliseconds patience)
    : task_(task),
      destination_(std::move(destination)),
      patience_(patience),
      thread_([this](const std::stop_token& over) { wait_for_stop(over); }) {}

void LastReport::wait_for_stop(const std::stop_token& over) {
  const auto failure = [&] {
    return task_.watchdog == nullptr ? nullptr : task_.watchdog->why_it_ends();
  };
  while (task_.context.stop == 0 && failure() == nullptr) {
    if (ends_within(std::chrono::milliseconds(poll_milliseconds), over)) return;
  }
  if (failure() == nullptr && patience_.count() > 0 && ends_within(patience_, over)) return;
  const std::optional<Report> report = report_so_far(task_, failure());
  if (report) write(*report);
}

// On standard output no other could take its place, so that it goes to a file alone. A sweep would
// take the remark that its own file cannot be written for the reason why the job failed.
void LastReport::write(const Report& report) {
  if (!destination_.file) return;
  try {
    write_file_atomically(*destination_.file, to_json(report), destination_.replace);
    destination_.replace = true;
  } catch (const std::exception& error) {
    if (!task_.request.conducted) task_.terminal.error(message_of(error));
  }
}

Destination LastReport::finish() {
  thread_.request_stop();
  thread_.join();
  return destination_;
}

void LastReport::finish(const Report& report) {
  finish();
  write(report);
}

}  // namespace nearmetal
