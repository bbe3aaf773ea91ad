#include "bench/sweep/parts_probe.h"

#include <algorithm>

#include "bench/sweep/run_layout.h"
#include "models/load_module.h"
#include "models/probe.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

// Halves are not exact, as multiprocessors come in groups, and clocks move.
constexpr double most_of_whole = 0.75;
constexpr double least_of_alone = 0.75;

// A client of MPS, which has one GPU, on a part of it or, where that has no percentages, on all.
std::vector<std::string> holding(const GpuPart& part) {
  std::vector<std::string> command = {
      "env",        "CUDA_VISIBLE_DEVICES=0", program_path().string(),
      "stress",     hold_probe_name,          "--device=cuda",
      "--conducted"};
  if (!part.percents.empty()) command.push_back(flag_of(part));
  return command;
}

// A process on each part at once; their rates go to `found`.
PartsVerdict hold(int64_t gpu, const std::vector<GpuPart>& parts, std::vector<double>& found,
                  const TimeLimits& limits, const std::atomic<int>& stop) {
  Commands commands;
  for (const GpuPart& part : parts) commands.push_back(holding(part));
  const LaunchOutcome outcome = run_through_mps(commands, {gpu}, limits, stop, [](const auto&) {});
  if (outcome.code == ExitCode::not_supported) return {.reason = outcome.failure};
  if (!outcome.failure.empty()) return {.failure = outcome.failure};
  if (outcome.neighbours.size() != parts.size()) return {.failure = "it was stopped"};
  for (const Neighbour& rate : outcome.neighbours) found.push_back(rate.runs_per_second);
  return {};
}

}  // namespace

std::string verdict_of_parts(const PartRates& rates) {
  const double slower =
      rates.together.empty() ? 0 : *std::min_element(rates.together.begin(), rates.together.end());
  if (rates.whole <= 0 || rates.alone <= 0 || slower <= 0) return "its probe measured nothing";
  if (rates.alone > most_of_whole * rates.whole) {
    return "half of the multiprocessors did " + percent(rates.alone / rates.whole) +
           " of what all do: the part is not kept to";
  }
  if (slower < least_of_alone * rates.alone) {
    return "of two halves at once one did " + percent(slower / rates.alone) +
           " of what it does alone: they do not run at the same time";
  }
  return "";
}

PartsVerdict try_halves(int64_t gpu, const TimeLimits& limits, const std::atomic<int>& stop) {
  PartRates rates;
  std::vector<double> whole, alone;
  const GpuPart all, first{0, {50, 50}}, second{1, {50, 50}};
  for (const auto& [parts, found] : {std::pair(std::vector{all}, &whole),
                                     {{first}, &alone},
                                     {{first, second}, &rates.together}}) {
    PartsVerdict verdict = hold(gpu, parts, *found, limits, stop);
    if (!verdict.reason.empty() || !verdict.failure.empty()) return verdict;
  }
  rates.whole = whole.front();
  rates.alone = alone.front();
  return {.reason = verdict_of_parts(rates)};
}

PartsVerdict try_split(int64_t gpu, const std::vector<int64_t>& percents, const TimeLimits& limits,
                       const std::atomic<int>& stop) {
  std::vector<double> unused;
  return hold(gpu, {{0, percents}}, unused, limits, stop);
}

}  // namespace nearmetal
