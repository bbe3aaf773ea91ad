#include "bench/run/last_report.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/text_table.h"
#include "bench/cli/process.h"
#include "bench/environment/leave_out_host_info.h"
#include "reports/document/metric.h"
#include "reports/json/json.h"

namespace nearmetal {
namespace {

constexpr std::chrono::milliseconds patience{500};

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
void tell_of_all_ranks(const RunConfig& config, Run& run) {
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

// None before the first step.
std::optional<Report> report_so_far(const RankTask& task) {
  if (!task.so_far.is_prepared) return std::nullopt;
  RankResult result;
  result.prepared = task.so_far.prepared;
  result.trained = result_so_far(task.so_far.progress);
  if (result.trained->steps.empty()) return std::nullopt;
  result.first_step_end_seconds = task.context.clock.seconds_at(result.trained->first_step_end);
  Report report = make_rank_report(task.request, task.device, task.start, result);
  report.exit_code = static_cast<int>(exit_code_of_signal(task.context.stop));
  tell_of_all_ranks(task.device.config, report.arms.at(0).runs.at(0));
  // The sweep needs the names of hosts to merge its jobs.
  const RunRequest& request = task.request;
  if (request.config.no_host_info && !request.conducted) leave_out_host_info(report);
  return report;
}

}  // namespace

Destination last_report_for_sweep() {
  const char* const file = std::getenv(last_report_variable);
  std::error_code ignored;  // what cannot be looked at is not there
  if (file == nullptr) return {};
  if (!std::filesystem::is_directory(std::filesystem::path(file).parent_path(), ignored)) return {};
  return {.file = file, .replace = true};
}

LastReport::LastReport(const RankTask& task, Destination destination)
    : task_(task),
      destination_(std::move(destination)),
      thread_([this](const std::stop_token& over) { wait_for_stop(over); }) {}

void LastReport::wait_for_stop(const std::stop_token& over) {
  while (task_.context.stop == 0) {
    if (ends_within(std::chrono::milliseconds(poll_milliseconds), over)) return;
  }
  if (ends_within(patience, over)) return;
  const std::optional<Report> report = report_so_far(task_);
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
    if (task_.request.conducted) return;
    task_.terminal.err << "nearmetal: " << printable(error.what()) << std::endl;
  }
}

Destination LastReport::finish() {
  thread_.request_stop();
  thread_.join();
  return destination_;
}

void LastReport::finish_for_sweep(const Report& report) {
  finish();
  write(report);
}

}  // namespace nearmetal
