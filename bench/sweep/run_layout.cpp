#include "bench/sweep/run_layout.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "bench/sweep/hosts_found.h"
#include "bench/sweep/mig_found.h"
#include "bench/sweep/mps_daemon.h"
#include "bench/sweep/parts_probe.h"
#include "models/errors.h"

namespace nearmetal {
namespace {

// The reports of all until one fails.
LaunchOutcome one_after_another(const Commands& commands, const TimeLimits& limits,
                                const std::atomic<int>& stop, const ShowProgress& show) {
  LaunchOutcome all;
  for (size_t i = 0; i < commands.size() && all.failure.empty() && stop == 0; ++i) {
    const std::string name = "job " + std::to_string(i + 1);
    LaunchOutcome one = run_launch({commands[i]}, limits, stop, [&](const std::string& progress) {
      show(name + ": " + progress);
    });
    std::move(one.reports.begin(), one.reports.end(), std::back_inserter(all.reports));
    if (!one.failure.empty()) all.failure = name + ": " + one.failure;
    all.code = one.code;
  }
  return all;
}

std::set<int64_t> gpus_of(const Placement& placement) {
  std::set<int64_t> gpus;
  for (const PlacedJob& job : placement.jobs) {
    for (const PlacedRank& rank : job.ranks) gpus.insert(*rank.gpu);
  }
  return gpus;
}

LaunchOutcome run(const Commands& commands, const Placement& placement, const TimeLimits& limits,
                  const std::atomic<int>& stop, const ShowProgress& show) {
  const std::optional<Share>& share = placement.share();
  if (share && share->way == SharingMode::serial)
    return one_after_another(commands, limits, stop, show);
  if (!share || !through_mps(*share)) return run_launch(commands, limits, stop, show);
  return run_through_mps(commands, gpus_of(placement), limits, stop, show);
}

bool ends_a_run(const std::string& word) {
  return word.starts_with("--steps") || word.starts_with("--duration") ||
         word.starts_with("--warmup");
}

// Kernels are chosen once for each: percent of the multiprocessors, or kind of device. The hosts of
// vGPUs have caches of their own.
std::string part_of(const PlacedJob& job) {
  const Share& share = *job.share;
  if (share.way == SharingMode::vgpu) return *share.profile + " " + job.ranks.front().host;
  const std::optional<MigDevice>& mig = job.ranks.front().mig;
  if (mig) return mig->profile.empty() ? mig->uuid : mig->profile;
  const std::string percent = std::to_string(share.threads_percent.value_or(100));
  return share.way == SharingMode::sm ? "own " + percent : percent;
}

// The percentages of the parts of each GPU, "25,75", of jobs with multiprocessors of their own.
std::set<std::string> parts_of(const LaunchPlan& plan, size_t layout) {
  constexpr std::string_view flag = "--gpu-part=";
  std::set<std::string> parts;
  for (const auto& command : commands_of(plan, layout)) {
    for (const std::string& word : command) {
      if (word.starts_with(flag)) parts.insert(word.substr(word.find(':') + 1));
    }
  }
  return parts;
}

}  // namespace

LaunchOutcome run_through_mps(Commands commands, const std::set<int64_t>& gpus,
                              const TimeLimits& limits, const std::atomic<int>& stop,
                              const ShowProgress& show) try {
  const MpsDaemon daemon(gpus);
  const std::vector<std::string> words = daemon.client_words();
  for (auto& command : commands) command.insert(command.begin(), words.begin(), words.end());
  LaunchOutcome outcome = run_launch(commands, limits, stop, show);
  const std::string fault = outcome.failure.empty() ? "" : daemon.fault();
  if (!fault.empty()) outcome.failure += "; the MPS server says: " + fault;
  return outcome;
} catch (const NotSupported& error) {
  return {{}, ExitCode::not_supported, error.what()};
}

void require_shares(const LaunchPlan& plan) {
  require_mig_devices(plan);
  for (size_t i = 0; i < plan.placements.size(); ++i) {
    const Placement& placement = plan.placements[i];
    if (!placement.share() || !through_mps(*placement.share())) continue;
    const std::string place = plan.source + plan.file.layouts[i].source;
    for (const PlacedJob& job : placement.jobs) {
      for (const PlacedRank& rank : job.ranks) {
        if (is_this_machine(rank.address)) continue;
        throw std::invalid_argument(place +
                                    ": an MPS daemon is started on this machine alone, not "
                                    "on '" +
                                    rank.address + "'");
      }
    }
    if (!placement.on_gpus()) throw NotSupported(place + ": MPS needs a GPU");
    const std::string reason = no_mps_reason();
    if (!reason.empty()) throw NotSupported(place + ": " + reason);
  }
}

std::map<size_t, std::string> layouts_without_parts(const LaunchPlan& plan,
                                                    const std::atomic<int>& stop,
                                                    const std::function<void(std::string)>& warn) {
  std::map<std::pair<int64_t, std::string>, std::string> reasons;  // by GPU and percentages
  // Of halves (no percentages) or of a split, tried once.
  const auto reason_against = [&](int64_t gpu, const std::string& percents) -> const std::string& {
    const auto [place, is_new] = reasons.try_emplace({gpu, percents});
    if (!is_new) return place->second;
    const TimeLimits& limits = plan.file.limits;
    const PartsVerdict verdict =
        percents.empty() ? try_halves(gpu, limits, stop) : try_split(gpu, percents, limits, stop);
    if (!verdict.failure.empty() && stop == 0) {
      warn("whether there can be SMs of their own could not be tried: " + verdict.failure);
    }
    return place->second = verdict.reason;
  };
  std::map<size_t, std::string> without;
  for (size_t layout = 0; layout < plan.placements.size() && stop == 0; ++layout) {
    const Placement& placement = plan.placements[layout];
    if (!placement.share() || placement.share()->way != SharingMode::sm) continue;
    std::set<std::string> tries = parts_of(plan, layout);
    tries.insert("");
    for (const std::string& percents : tries) {
      const std::string& reason = reason_against(*placement.jobs[0].ranks[0].gpu, percents);
      if (!reason.empty()) without.emplace(layout, reason);
    }
  }
  return without;
}

LaunchOutcome run_layout(const LaunchPlan& plan, size_t layout, const std::atomic<int>& stop,
                         const ShowProgress& show) {
  return run(commands_of(plan, layout), plan.placements.at(layout), plan.file.limits, stop, show);
}

std::map<size_t, std::string> choose_plans_of_shares(const LaunchPlan& plan,
                                                     const std::set<size_t>& layouts,
                                                     const std::atomic<int>& stop,
                                                     const ShowProgress& show) {
  std::map<size_t, std::string> failures;
  std::set<std::pair<std::vector<std::string>, std::string>> chosen;  // workload, share
  for (const size_t layout : layouts) {
    const Placement& placement = plan.placements.at(layout);
    if (!placement.share() || !placement.on_gpus()) continue;
    const Commands commands = commands_of(plan, layout);
    for (size_t job = 0; job < placement.jobs.size() && stop == 0; ++job) {
      if (placement.jobs[job].stress) continue;
      const std::string part = part_of(placement.jobs[job]);
      if (!chosen.emplace(plan.run_arguments.at(layout), part).second) continue;
      std::vector<std::string> command = commands[job];
      std::erase_if(command, ends_a_run);
      command.insert(command.end(), {"--steps=1", "--warmup=1"});
      const LaunchOutcome outcome = run({command}, placement, plan.file.limits, stop, show);
      if (!outcome.failure.empty()) failures.emplace(layout, outcome.failure);
    }
  }
  return failures;
}

}  // namespace nearmetal
