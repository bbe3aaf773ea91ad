#include "bench/sweep/run_layout.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "bench/cli/process.h"
#include "bench/run/sweep_control.h"
#include "bench/sweep/job_process.h"
#include "bench/sweep/make_launch_plan.h"
#include "bench/sweep/mps_daemon.h"
#include "bench/sweep/supported_layouts.h"
#include "bench/sweep/sweep_runs.h"
#include "models/load_module.h"
#include "models/probe.h"
#include "reports/json/json.h"

namespace nearmetal {
namespace {

// The time from the order to the start: enough for it to reach every host.
constexpr double start_delay_seconds = 0.5;
constexpr double least_silence_seconds = 5;   // of a rank that a busy machine keeps from speaking
constexpr double stop_patience_seconds = 20;  // to finish a step and tell what was measured
constexpr double most_seconds_apart = 1;      // clocks of jobs that are to start at once

std::string seconds_text(double seconds) { return significant(seconds, 3) + " s"; }

class RunningLaunch {
 public:
  RunningLaunch(const TimeLimits& limits, const std::atomic<int>& stop, const ShowProgress& show)
      : limits_(limits), stop_(stop), show_(show) {}

  LaunchOutcome run(const Commands& commands, bool on_this_machine) {
    try {
      for (const auto& command : commands) {
        folders_.push_back(std::make_unique<JobFolder>(on_this_machine));
        jobs_.push_back(std::make_unique<JobProcess>(command, folders_.back().get()));
      }
    } catch (const std::runtime_error& error) {
      fail(message_of(error), ExitCode::run_failed);
    }
    while (!all([](const JobProcess& job) { return job.ended(); })) {
      wait();
      for (const auto& job : jobs_) job->update();
      check_for_failures();
      conduct();
      show_(progress());
    }
    check_for_failures();
    for (const auto& job : jobs_) {
      if (job->report()) outcome_.reports.push_back(*job->report());
      if (job->neighbour()) outcome_.neighbours.push_back(*job->neighbour());
    }
    return std::move(outcome_);
  }

 private:
  template <class Condition>
  bool all(const Condition& condition) const {
    return std::ranges::all_of(jobs_, [&](const auto& job) { return condition(*job); });
  }

  void wait() const {
    std::vector<pollfd> files;
    for (const auto& job : jobs_) {
      if (job->ended()) continue;
      files.push_back({job->out(), POLLIN, 0});
      files.push_back({job->err(), POLLIN, 0});
    }
    poll(files.data(), files.size(), poll_milliseconds);
  }

  void order_all(const std::string& line) {
    for (const auto& job : jobs_) job->order(line);
  }

  void conduct() {
    if (stop_ != 0 && !stop_ordered_) {
      stop_ordered_ = steady_seconds();
      order_all(stop_order);
    }
    const auto silent = [](const JobProcess& job) { return job.heartbeats().empty(); };
    if (stop_ordered_ &&
        (steady_seconds() - *stop_ordered_ > stop_patience_seconds || all(silent))) {
      end_all();
    }
    if (!started_ && all([](const JobProcess& job) { return job.ready(); })) {
      started_ = true;
      start_all();
    }
    if (!end_ordered_ && all([](const JobProcess& job) { return job.measured(); })) {
      end_ordered_ = true;
      order_all(end_order);
    }
  }

  // One alone starts whatever its clock says.
  void start_all() {
    if (jobs_.size() == 1) return order_all(std::string(start_order) + " -inf");
    const std::string wrong = clocks_apart();
    if (!wrong.empty()) return fail(wrong, ExitCode::run_failed);
    order_all(std::string(start_order) + " " +
              std::to_string(unix_seconds() + start_delay_seconds));
  }

  // Empty where they agree, as on one host they do.
  std::string clocks_apart() const {
    const Heartbeat *ahead = nullptr, *behind = nullptr;
    for (const auto& job : jobs_) {
      const auto first = job->heartbeats().find(0);
      if (first == job->heartbeats().end() || !first->second.clock_lag_seconds) continue;
      const Heartbeat& found = first->second;
      if (!ahead || found.clock_lag_seconds < ahead->clock_lag_seconds) ahead = &found;
      if (!behind || found.clock_lag_seconds > behind->clock_lag_seconds) behind = &found;
    }
    if (!ahead || ahead->progress.host == behind->progress.host) return "";
    const double apart = *behind->clock_lag_seconds - *ahead->clock_lag_seconds;
    if (apart <= most_seconds_apart) return "";
    return "the clock of host " + behind->progress.host + " is " + seconds_text(apart) +
           " behind that of host " + ahead->progress.host +
           ": jobs at once are started and measured by the time of day; set the clocks (NTP)";
  }

  void end_all() {
    for (const auto& job : jobs_) job->end();
  }

  void fail(const std::string& why, ExitCode code, std::optional<FailureCode> failure_code = {}) {
    if (outcome_.failure) return;
    outcome_.failure_code = failure_code;
    outcome_.failure = why;
    outcome_.code = code;
    end_all();
  }

  void fail(const std::string& name, const Failure& failure) {
    auto code = static_cast<ExitCode>(failure.exit_code);
    constexpr std::array kept = {ExitCode::usage, ExitCode::not_supported,
                                 ExitCode::not_as_expected};
    if (std::ranges::find(kept, code) == kept.end()) code = ExitCode::run_failed;
    fail(name + failure.text, code, failure.code);
  }

  void check_for_failures() {
    for (size_t i = 0; i < jobs_.size(); ++i) {
      const std::string name = jobs_.size() > 1 ? "job " + std::to_string(i + 1) + ": " : "";
      const JobProcess& job = *jobs_[i];
      if (job.ended()) {
        const bool reported = stop_ordered_ ? job.report() || job.neighbour()
                                            : job.has_result() && job.exit_code() == 0;
        if (!reported) fail(name, failure_of_job(job));
      } else {
        check_time(job, name);
      }
    }
  }

  void check_time(const JobProcess& job, const std::string& name) {
    const double running = steady_seconds() - begin_;
    const Event progress = job.progress();
    // The proof comes after the last step.
    const bool first = progress.steps == 0 && progress.phase != RankPhase::proof;
    std::string why;
    if (running > limits_.job_seconds) {
      why = "took longer than " + seconds_text(limits_.job_seconds);
    } else if (first && running > limits_.start_seconds) {
      why = "no step within " + seconds_text(limits_.start_seconds) + " of the start";
    } else if (job.seconds_without_step() > limits_.step_seconds) {
      why = "no step for " + seconds_text(limits_.step_seconds);
    } else if (job.seconds_of_silence() > std::max(limits_.step_seconds, least_silence_seconds)) {
      why = "no sign of life for " + seconds_text(job.seconds_of_silence());
    }
    if (!why.empty()) fail(name + why + place_of_standstill(job), ExitCode::timed_out);
  }

  std::string progress() const {
    std::vector<double> speeds;  // they do not add where jobs do unlike work
    std::vector<SampleUnit> units;
    for (const auto& job : jobs_) {
      const Event event = job->progress();
      if (event.samples_per_second <= 0) continue;
      speeds.push_back(event.samples_per_second);
      units.push_back(event.sample);
    }
    const Event first = jobs_[0]->progress();
    if (speeds.empty()) return first.phase ? to_string(*first.phase) : "";
    const auto [slowest, fastest] = std::ranges::minmax(speeds);
    const auto whole = [](double speed) { return std::to_string(std::llround(speed)); };
    const std::string rate = words_of(units).rate;
    if (jobs_.size() == 1) return whole(fastest) + " " + rate;
    return whole(slowest) + " to " + whole(fastest) + " " + rate + " each";
  }

  const TimeLimits& limits_;
  const std::atomic<int>& stop_;
  const ShowProgress& show_;
  std::vector<std::unique_ptr<JobFolder>> folders_;  // by job
  std::vector<std::unique_ptr<JobProcess>> jobs_;
  const double begin_ = steady_seconds();
  bool started_ = false, end_ordered_ = false;
  std::optional<double> stop_ordered_;
  LaunchOutcome outcome_;
};

struct SmVerdict {
  std::optional<std::string> reason{};   // why there are none; none: they can be had
  std::optional<std::string> failure{};  // of the try itself, which then says nothing
};

// run_launch() of clients of an MPS daemon of their own, with these GPUs (see MpsDaemon). What its
// server logs of faults is in the failure.
LaunchOutcome run_through_mps(Commands commands, const std::set<int64_t>& gpus,
                              const TimeLimits& limits, const std::atomic<int>& stop,
                              const ShowProgress& show) try {
  const MpsDaemon daemon(gpus);
  const std::vector<std::string> words = daemon.client_words();
  for (auto& command : commands) command.insert(command.begin(), words.begin(), words.end());
  LaunchOutcome outcome = run_launch(commands, limits, stop, show, true);
  const auto fault = outcome.failure ? daemon.fault() : std::nullopt;
  if (fault) *outcome.failure += "; the MPS server says: " + *fault;
  return outcome;
} catch (const NotSupported& error) {
  return {{}, ExitCode::not_supported, error.what()};
}

// Halves are not exact, as multiprocessors come in groups, and clocks move.
constexpr double most_of_whole = 0.75;
constexpr double least_of_alone = 0.75;

// A client of MPS, which has one GPU, on a part of it or, where that has no percentages, on all.
std::vector<std::string> holding(const GpuShare& part) {
  std::vector<std::string> command = {
      "env",        "CUDA_VISIBLE_DEVICES=0", program_path().string(),
      "stress",     hold_probe_name,          "--device=cuda",
      "--conducted"};
  if (!part.percents.empty()) command.push_back(flag_of(part));
  return command;
}

// A process on each part at once; their rates go to `found`.
SmVerdict hold(int64_t gpu, const std::vector<GpuShare>& parts, std::vector<double>& found,
               const TimeLimits& limits, const std::atomic<int>& stop) {
  const LaunchOutcome outcome =
      run_through_mps(transformed(parts, holding), {gpu}, limits, stop, [](const auto&) {});
  if (outcome.code == ExitCode::not_supported) return {.reason = outcome.failure};
  if (outcome.failure) return {.failure = outcome.failure};
  if (outcome.neighbours.size() != parts.size()) return {.failure = "it was stopped"};
  for (const Neighbour& rate : outcome.neighbours) found.push_back(rate.runs_per_second);
  return {};
}

// The reports of all until one fails.
LaunchOutcome one_after_another(const Commands& commands, const TimeLimits& limits,
                                const std::atomic<int>& stop, const ShowProgress& show,
                                bool on_this_machine) {
  LaunchOutcome all;
  for (size_t i = 0; i < commands.size() && !all.failure && stop == 0; ++i) {
    const std::string name = "job " + std::to_string(i + 1);
    const auto show_one = [&](const std::string& progress) { show(name + ": " + progress); };
    LaunchOutcome one = run_launch({commands[i]}, limits, stop, show_one, on_this_machine);
    append(all.reports, std::move(one.reports));
    if (one.failure) all.failure = name + ": " + *one.failure;
    all.code = one.code;
    all.failure_code = one.failure_code;
  }
  return all;
}

LaunchOutcome run(const Commands& commands, const Placement& placement, const TimeLimits& limits,
                  const std::atomic<int>& stop, const ShowProgress& show) {
  const std::optional<Share>& share = placement.share();
  const bool here = !address_elsewhere(placement);
  if (share && share->mode == SharingMode::serial)
    return one_after_another(commands, limits, stop, show, here);
  if (!share || !through_mps(*share)) return run_launch(commands, limits, stop, show, here);
  std::set<int64_t> gpus;
  for (const PlacedRank* rank : ranks_of(placement)) gpus.insert(*rank->gpu);
  return run_through_mps(commands, gpus, limits, stop, show);
}

// Kernels are chosen once for each size of share, and for multiprocessors of a job's own apart from
// others. The hosts of vGPUs have caches of their own.
std::string part_of(const PlacedJob& job) {
  const SharingMode way = job.share->mode;
  if (way == SharingMode::vgpu) return share_size(job) + " " + job.ranks.front().host;
  return (way == SharingMode::sm ? "own " : "") + share_size(job);
}

void shorten_to_one_step(Workload& workload) {
  workload.config.steps = workload.config.warmup = 1;
  workload.config.duration_seconds = RunConfig{}.duration_seconds;
  std::erase_if(workload.given, [](const std::string& name) {
    return name == "steps" || name == "duration_seconds" || name == "warmup";
  });
  workload.given.insert(workload.given.end(), {"steps", "warmup"});
}

// Since the start; empty: none.
std::string change_of_executable(const LaunchPlan& plan, size_t layout) try {
  const Layout& planned = plan.file.layouts.at(layout);
  const std::optional<Executable>& build = planned.build;
  if (!build || build == find_executable(build->path, planned.source)) return "";
  return build->path + " is another build than at the start";
} catch (const std::exception& error) {  // it is gone, or just being written
  return message_of(error);
}

// With the place in the layout file where a job found something else than is expected there.
std::optional<std::string> placed(const LaunchOutcome& outcome, const Layout& layout) {
  const bool names_no_place = outcome.failure_code == FailureCode::out_of_memory;
  if (!outcome.failure_code || names_no_place) return outcome.failure;
  std::string place = layout.source;
  if (outcome.failure_code == FailureCode::expect_gpu) place += "/expect/gpu";
  if (outcome.failure_code == FailureCode::expect_environment) place += "/expect/environment";
  if (outcome.failure_code == FailureCode::expect_link) place += "/expect/link";
  return place + ": " + *outcome.failure;  // other expectations are of the jobs' shares
}

// The refusal of a job that measured something else than was asked for. `reports`: of the first
// jobs that train.
std::string refusal_of(const LaunchPlan& plan, size_t layout, const std::vector<Report>& reports) {
  const std::vector<size_t> jobs = plan.placements.at(layout).training_jobs();
  for (size_t i = 0; i < reports.size(); ++i) {
    const std::string other = other_work(plan.workloads.at(layout).of(jobs.at(i)), reports[i]);
    if (other.empty()) continue;
    const std::string name = reports.size() > 1 ? "job " + std::to_string(i + 1) : "it";
    return name + " did other work than it was started for: " + other;
  }
  return "";
}

// Tries on a GPU of this machine, by its index, through an MPS daemon, whether two halves run at
// once; some seconds.
SmVerdict try_halves(int64_t gpu, const TimeLimits& limits, const std::atomic<int>& stop) {
  std::vector<double> whole, alone, together;
  const GpuShare all, first{0, {50, 50}}, second{1, {50, 50}};
  for (const auto& [parts, found] :
       {std::pair(std::vector{all}, &whole), {{first}, &alone}, {{first, second}, &together}}) {
    SmVerdict verdict = hold(gpu, parts, *found, limits, stop);
    if (verdict.reason || verdict.failure) return verdict;
  }
  return {.reason = verdict_of_sms(whole.front(), alone.front(), together)};
}

}  // namespace

LaunchOutcome run_launch(const Commands& commands, const TimeLimits& limits,
                         const std::atomic<int>& stop, const ShowProgress& show,
                         bool on_this_machine) {
  return RunningLaunch(limits, stop, show).run(commands, on_this_machine);
}

std::optional<std::string> verdict_of_sms(double whole, double alone,
                                          const std::vector<double>& together) {
  const double slower = together.empty() ? 0 : *std::ranges::min_element(together);
  if (whole <= 0 || alone <= 0 || slower <= 0) return "its probe measured nothing";
  if (alone > most_of_whole * whole) {
    return "half of the multiprocessors did " + percent(alone / whole) +
           " of what all do: the limit has no effect";
  }
  if (slower < least_of_alone * alone) {
    return "one of two halves at once did " + percent(slower / alone) +
           " of what it does alone: they do not run at the same time";
  }
  return std::nullopt;
}

std::map<size_t, std::string> layouts_without_parts(const LaunchPlan& plan,
                                                    const std::atomic<int>& stop,
                                                    const std::function<void(std::string)>& warn) {
  using Percents = std::vector<int64_t>;
  std::map<std::pair<int64_t, Percents>, std::optional<std::string>> reasons;  // by GPU
  // The reason against halves (no percentages) or a split, tried once.
  const auto reason_against = [&](int64_t gpu, const Percents& percents) {
    const auto [place, is_new] = reasons.try_emplace({gpu, percents});
    if (!is_new) return place->second;
    const TimeLimits& limits = plan.file.limits;
    std::vector<double> unused;
    const SmVerdict verdict = percents.empty() ? try_halves(gpu, limits, stop)
                                               : hold(gpu, {{0, percents}}, unused, limits, stop);
    if (verdict.failure && stop == 0) {
      warn("the trial of reserved SMs failed: " + *verdict.failure);
    }
    return place->second = verdict.reason;
  };
  std::map<size_t, std::string> without;
  for (size_t layout = 0; layout < plan.placements.size() && stop == 0; ++layout) {
    const Placement& placement = plan.placements[layout];
    if (!placement.share() || placement.share()->mode != SharingMode::sm) continue;
    std::set<Percents> tries = {{}};
    for (const PlacedJob& job : placement.jobs) tries.insert(gpu_part_of(placement, job).percents);
    for (const Percents& percents : tries) {
      const auto reason = reason_against(*placement.jobs[0].ranks[0].gpu, percents);
      if (reason) without.emplace(layout, *reason);
    }
  }
  return without;
}

LaunchOutcome run_layout(const LaunchPlan& plan, size_t layout, const std::atomic<int>& stop,
                         const ShowProgress& show) {
  const std::string change = change_of_executable(plan, layout);
  if (!change.empty()) return {{}, ExitCode::run_failed, change};
  LaunchOutcome outcome =
      run(commands_of(plan, layout), plan.placements.at(layout), plan.file.limits, stop, show);
  const std::string refusal = refusal_of(plan, layout, outcome.reports);
  if (!refusal.empty()) {
    return {std::move(outcome.reports), ExitCode::run_failed, refusal,
            std::move(outcome.neighbours)};
  }
  outcome.failure = placed(outcome, plan.file.layouts.at(layout));
  return outcome;
}

bool chooses_kernels_alone(const LaunchPlan& plan, size_t layout) {
  const Placement& placement = plan.placements.at(layout);
  const RunConfig& config = plan.workloads.at(layout).config;
  return placement.share() && placement.on_gpus() && !config.plans && config.plan_cache != "off";
}

std::map<size_t, std::string> choose_plans_of_shares(const LaunchPlan& plan,
                                                     const std::set<size_t>& layouts,
                                                     const std::atomic<int>& stop,
                                                     const ShowProgress& show) {
  std::map<size_t, std::string> failures;
  std::set<std::tuple<std::string, std::string, std::string>> chosen;  // work, cache, share
  LaunchPlan brief = plan;
  for (LayoutWorkloads& workloads : brief.workloads) {
    shorten_to_one_step(workloads);
    for (auto& [job, workload] : workloads.of_jobs) shorten_to_one_step(workload);
  }
  for (const size_t layout : layouts) {
    const Placement& placement = plan.placements.at(layout);
    const Commands commands = commands_of(brief, layout);
    for (const size_t job : placement.training_jobs()) {
      if (stop != 0) break;
      const RunConfig& config = brief.workloads.at(layout).of(job).config;
      const std::string work = config_sha256(config);
      const std::string part = part_of(placement.jobs[job]);
      if (!chosen.emplace(work, config.plan_cache.value_or(""), part).second) continue;
      const LaunchOutcome outcome = run({commands[job]}, placement, plan.file.limits, stop, show);
      if (outcome.failure) failures.emplace(layout, *outcome.failure);
    }
  }
  return failures;
}

}  // namespace nearmetal
