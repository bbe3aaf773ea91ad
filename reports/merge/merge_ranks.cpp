#include <algorithm>
#include <cmath>

#include "reports/document/metric.h"
#include "reports/merge/merge.h"
#include "reports/text/text.h"
#include "reports/text/warning_text.h"

namespace nearmetal {
namespace {

constexpr double clock_noise_seconds = 0.01;

Run& run_of(Report& report) { return report.arms.at(0).runs.at(0); }

// A function of the ranks' known values; unknown with the reason of the first that is.
template <class Get, class Fold>
auto folded(std::vector<Report>& reports, const Get& get, const Fold& fold) {
  auto result = get(run_of(reports[0]));
  for (size_t i = 1; i < reports.size() && result; ++i) {
    const auto next = get(run_of(reports[i]));
    result = next ? decltype(result)(fold(*result, *next)) : next;
  }
  return result;
}

template <class Get>
Maybe<double> sum(std::vector<Report>& reports, const Get& get) {
  return folded(reports, get, [](double a, double b) { return a + b; });
}

template <class Get>
Maybe<double> average(std::vector<Report>& reports, const Get& get) {
  Maybe<double> value = sum(reports, get);
  if (value) *value.value /= static_cast<double>(reports.size());
  return value;
}

void merge_throughput(std::vector<Report>& reports, const RunConfig& config, Run& run) {
  const bool together = in_step(config, std::ssize(reports));
  run.window = folded(
      reports, [](const Run& r) { return r.window; },
      [](TimedWindow a, const TimedWindow& b) {
        a.samples += b.samples;
        a.seconds = std::max(a.seconds, b.seconds);
        return a;
      });
  if (run.window) {
    int64_t& samples = run.window.value->samples;
    samples = std::llround(samples_of_job(config, static_cast<double>(samples)));
  }
  Maybe<double> throughput = sum(reports, [](const Run& r) { return r.throughput; });
  if (throughput && together) throughput = throughput_of(*run.window);
  run.peak_flops_per_second = sum(reports, [](const Run& r) { return r.peak_flops_per_second; });
  set_throughput(throughput, run);
}

void merge_proof(std::vector<Report>& reports, Proof& proof) {
  const auto mean_of = [&](auto member) {
    return average(reports, [member](const Run& r) { return r.proof.*member; });
  };
  Proof merged = proof;
  merged.window_start_loss = mean_of(&Proof::window_start_loss);
  merged.window_end_loss = mean_of(&Proof::window_end_loss);
  merged.window_start_gradient_norm = mean_of(&Proof::window_start_gradient_norm);
  merged.window_end_gradient_norm = mean_of(&Proof::window_end_gradient_norm);
  for (Report& report : reports) {
    const Proof& other = run_of(report).proof;
    merged.loss_finite = merged.loss_finite && other.loss_finite;
    if (other.failed_step && (!merged.failed_step || *other.failed_step < *merged.failed_step)) {
      merged.failed_step = other.failed_step;
    }
    if (other.outputs_finite == false) merged.outputs_finite = false;
    if (other.replicas_identical == false) merged.replicas_identical = false;
    if (other.sums_exact == false) merged.sums_exact = false;
    if (other.verify && !other.verify->passed) merged.verify = other.verify;
  }
  proof = merged;
}

void add_lower_bound(Communication& communication, double ranks) {
  double best = 0;
  for (const Bucket& bucket : communication.buckets) {
    best = std::max(best, bucket.bus_bandwidth_bytes_per_second);
  }
  if (!(best > 0)) return;
  communication.best_bus_bandwidth_bytes_per_second = best;
  communication.least_seconds_per_step =
      2 * (ranks - 1) / ranks * static_cast<double>(communication.bytes_per_step) / best;
}

// Stages have gradients of their own: those of the first are told.
void merge_communication(std::vector<Report>& reports, const RunConfig& config, Run& run) {
  if (!run.communication) return;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const auto& other = run_of(reports[rank]).communication;
    if (!other || stage_of(config, static_cast<int64_t>(rank)) > 0) continue;
    for (size_t i = 0; i < run.communication->buckets.size(); ++i) {
      Bucket& bucket = run.communication->buckets[i];
      if (other->buckets.at(i).seconds > bucket.seconds) bucket = other->buckets[i];
    }
  }
  run.communication->buckets_seconds = 0;
  for (const Bucket& bucket : run.communication->buckets) {
    run.communication->buckets_seconds += bucket.seconds;
  }
  add_lower_bound(*run.communication,
                  static_cast<double>(replicas_of(config, std::ssize(reports))));
  run.communication->exposed_seconds_per_step = folded(
      reports, [](const Run& r) { return r.ranks.at(0).exposed_communication_seconds; },
      [](double a, double b) { return std::max(a, b); });
}

std::optional<int64_t> stage_of_rank(const Report& report, int64_t rank) {
  const RunConfig& config = report.invocation.config;
  return config.pipeline > 1 ? std::optional(stage_of(config, rank)) : std::nullopt;
}

// A warning that every rank gives in the same words is given once, with the worst figure.
std::vector<Warning> merged_warnings(std::vector<Report>& reports) {
  std::vector<Warning> warnings;
  const auto takes_worse = [&](Report& report, Warning& warning) {
    for (const Warning& other : run_of(report).warnings) {
      if (other.code != warning.code || other.text != warning.text) continue;
      if (other.figure && warning.figure && is_worse(*other.figure, *warning.figure)) {
        warning.figure = other.figure;
      }
      return true;
    }
    return false;
  };
  for (size_t i = 0; i < reports.size(); ++i) {
    for (Warning warning : run_of(reports[i]).warnings) {
      const Warning own = warning;
      const bool common = std::ranges::all_of(
          reports, [&](Report& report) { return takes_worse(report, warning); });
      if (common && i > 0) continue;
      if (!common) {
        warning = own;
        warning.rank = i;
        warning.stage = stage_of_rank(reports[i], *warning.rank);
        warning.host = reports[i].environments.at(0).host_name;
      }
      warnings.push_back(warning);
    }
  }
  return warnings;
}

// Ranks in step open their windows after the same step, so that clocks which agree show starts no
// further apart than a step.
void warn_of_clock_skew(const std::vector<Environment>& environments, Run& run) {
  if (!run.window || !run.communication) return;
  const double step_seconds = mean_step_seconds(*run.window);
  const auto earlier = [](const Rank& a, const Rank& b) {
    return a.window_start_unix_seconds < b.window_start_unix_seconds;
  };
  const auto [first, last] = std::ranges::minmax_element(run.ranks, earlier);
  if (!first->window_start_unix_seconds) return;
  const double apart = *last->window_start_unix_seconds - *first->window_start_unix_seconds;
  if (first->environment == last->environment || apart < step_seconds + clock_noise_seconds) return;
  run.warnings.push_back(
      {"clock_skew",
       "the clock of " + environments.at(last->environment).host_name + " is about " +
           significant(apart, 2) + " s ahead of that of " +
           environments.at(first->environment).host_name +
           ": jobs at once start together by these clocks (chrony or NTP sets them)",
       Figure{apart, step_seconds + clock_noise_seconds, FigureUnit::seconds}});
}

void merge_status(std::vector<Report>& reports, Run& run) {
  for (size_t i = 0; i < reports.size(); ++i) {
    const Run& other = run_of(reports[i]);
    if (other.status <= run.status && i > 0) continue;
    run.status = other.status;
    if (!other.failure) continue;
    const auto rank = static_cast<int64_t>(i);
    run.failure =
        rank_text(rank, stage_of_rank(reports[i], rank), reports[i].environments.at(0).host_name) +
        ": " + *other.failure;
  }
}

}  // namespace

Report merge_ranks(std::vector<Report> reports) {
  if (reports.size() == 1) return std::move(reports[0]);
  Report merged = reports.at(0);
  Run& run = run_of(merged);
  merged.environments.clear();
  run.ranks.clear();
  for (Report& report : reports) {
    std::vector<Rank> ranks = run_of(report).ranks;
    merge_environments(report.environments, ranks, merged.environments);
    run.ranks.push_back(std::move(ranks.at(0)));
  }
  const auto world_size = std::ssize(reports);
  run.world_size = world_size;
  run.warnings = merged_warnings(reports);
  const RunConfig& config = merged.invocation.config;
  merge_throughput(reports, config, run);
  merge_proof(reports, run.proof);
  merge_communication(reports, config, run);
  merge_pipeline(config, run);
  warn_of_clock_skew(merged.environments, run);
  merge_status(reports, run);
  merged.status = run.status;
  return merged;
}

}  // namespace nearmetal
