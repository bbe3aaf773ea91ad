#include "reports/forecast/exchange_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "base/text.h"
#include "reports/document/steps.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

constexpr double unlimited = 1e30;     // bytes per second
constexpr double most_slowing = 1;     // twice the time
constexpr int halvings = 24;           // of a search
constexpr int seeds = 4;               // draws of ranks, each the same ones every time
constexpr double rank_steps = 20'000;  // of a simulation, as long as there are enough steps
constexpr double fewest_steps = 8, most_steps_of_seed = 1000;

double simulated(const SimulatedJob& job, int64_t ranks) {
  const auto steps = static_cast<int64_t>(
      std::clamp(rank_steps / static_cast<double>(ranks), fewest_steps, most_steps_of_seed));
  double sum = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) sum += mean_step_seconds(job, ranks, steps, seed);
  return sum / seeds;
}

ExchangeParts parts_of(const SimulatedJob& job, int64_t ranks, double slowing) {
  SimulatedJob changed = job;
  changed.slowing = 0;
  const double full = simulated(changed, ranks);
  changed.inside.latency_seconds = changed.between.latency_seconds = 0;
  const double without_latency = simulated(changed, ranks);
  changed.inside.bytes_per_second = changed.between.bytes_per_second = unlimited;
  const double silent = simulated(changed, ranks);
  ExchangeParts parts{.waiting = silent - job.compute_seconds * static_cast<double>(job.accumulate),
                      .bytes = without_latency - silent,
                      .latency = full - without_latency};
  if (slowing == 0) return parts;
  changed = job;
  changed.slowing = slowing;
  parts.slowing = simulated(changed, ranks) - full;
  return parts;
}

const Communication* communication_of(const SetRun& run) {
  const auto& found = run.run.communication;
  return found && !found->buckets.empty() ? &*found : nullptr;
}

struct TimedSum {
  double bytes = 0, seconds = 0, count = 0;  // of those that sum
};

// Latency and time of a byte that fit best, relative to each sum; neither is negative.
Link fitted_link(const std::vector<TimedSum>& sums) {
  double mm = 0, mb = 0, bb = 0, m = 0, b = 0;
  for (const TimedSum& sum : sums) {
    const double messages = 2 * (sum.count - 1) / sum.seconds;
    const double bytes = messages * sum.bytes / sum.count;
    mm += messages * messages;
    mb += messages * bytes;
    bb += bytes * bytes;
    m += messages;
    b += bytes;
  }
  const double determinant = mm * bb - mb * mb;
  double latency = determinant > 1e-9 * mm * bb ? (bb * m - mb * b) / determinant : 0;
  double byte = bb > 0 ? (b - mb * std::max(0.0, latency)) / bb : 0;
  if (byte <= 0) latency = m / mm;
  latency = std::max(0.0, latency);
  return {byte > 0 ? 1 / byte : unlimited, latency};
}

// Of the sums that these runs timed, within hosts or between them.
std::vector<TimedSum> sums_of(const std::vector<MeasuredSize>& sizes, bool between,
                              const Link& inside) {
  std::vector<TimedSum> sums;
  for (const MeasuredSize& size : sizes) {
    const double hosts = static_cast<double>(size.ranks) / static_cast<double>(size.per_host);
    if ((hosts > 1) != between || size.ranks < 2) continue;
    for (const SetRun* run : size.runs) {
      const Communication* communication = communication_of(*run);
      if (communication == nullptr) continue;
      for (const Bucket& bucket : communication->buckets) {
        const auto bytes = static_cast<double>(bucket.bytes);
        const auto per_host = static_cast<double>(size.per_host);
        const bool pays_inside = between && per_host > 1 && inside.bytes_per_second > 0;
        const double seconds =
            bucket.seconds - (pays_inside ? ring_seconds(bytes, per_host, inside) : 0);
        sums.push_back({bytes, std::max(seconds, bucket.seconds / 10), between ? hosts : per_host});
      }
    }
  }
  return sums;
}

// Steps of the only rank of a run without their drift, as factors of their mean.
std::vector<double> jitter_of(const std::vector<MeasuredSize>& sizes) {
  constexpr size_t enough = 5000;
  std::vector<double> jitter;
  for (const MeasuredSize& size : sizes) {
    if (size.ranks > sizes.front().ranks) break;
    for (const SetRun* run : size.runs) {
      if (!run->run.window || run->run.ranks.empty() || jitter.size() > enough) continue;
      const std::span<const double> steps = window_steps(run->run, 0);
      if (steps.size() < 2) continue;
      const double drift = relative_drift(steps).value_or(0), middle = mean(steps);
      for (size_t i = 0; i < steps.size(); ++i) {
        const double along = static_cast<double>(i) / static_cast<double>(steps.size() - 1) - 0.5;
        jitter.push_back(steps[i] / (middle * std::max(0.1, 1 + drift * along)));
      }
    }
  }
  if (jitter.empty()) return {1};
  const double middle = mean(jitter);
  for (double& factor : jitter) factor /= middle;
  return jitter;
}

// What ranks of a job computed in a step, which is what they did not wait, as factors of its mean.
std::vector<double> speeds_of(const std::vector<MeasuredSize>& sizes) {
  std::vector<double> speeds;
  for (const MeasuredSize& size : sizes) {
    for (const SetRun* run : size.runs) {
      std::vector<double> seconds;
      for (const Rank& rank : run->run.ranks) {
        if (!rank.step_time || !rank.exposed_communication_seconds) continue;
        const double own = rank.step_time->median_seconds - *rank.exposed_communication_seconds;
        if (own > 0) seconds.push_back(own);
      }
      if (std::ssize(seconds) != size.ranks || size.ranks < 2) continue;
      for (const double own : seconds) speeds.push_back(own / mean(seconds));
    }
  }
  return speeds.empty() ? std::vector<double>{1} : speeds;
}

double bytes_factor(const Bucket& bucket, const std::optional<GradientType>& asked) {
  if (!asked || *asked == GradientType::computed) return 1;
  if (!bucket.type) {
    throw std::invalid_argument(
        "--gradient-type: these reports do not tell the type of the gradients that were sent");
  }
  const double wanted = *asked == GradientType::fp32 ? 4 : 2;
  return wanted / static_cast<double>(element_bytes(*bucket.type));
}

}  // namespace

bool has_sums(const MeasuredSize& size) {
  return std::ranges::any_of(size.runs,
                             [](const SetRun* run) { return communication_of(*run) != nullptr; });
}

ExchangeModel::ExchangeModel(const std::vector<MeasuredSize>& steps,
                             const std::vector<MeasuredSize>& sums, const ForecastRequest& request,
                             int64_t per_host) {
  const bool have_own = std::ranges::any_of(steps, has_sums);
  const std::vector<MeasuredSize>& timed = have_own ? steps : sums;
  const auto size = std::ranges::find_if(timed.rbegin(), timed.rend(), has_sums);
  const auto run = std::ranges::find_if(
      size->runs, [](const SetRun* one) { return communication_of(*one) != nullptr; });
  const std::vector<Bucket>& buckets = communication_of(**run)->buckets;
  measured_.per_host = per_host;
  measured_.accumulate = steps.front().accumulate;
  measured_.compute_seconds =
      steps.front().step_seconds() / static_cast<double>(steps.front().accumulate);
  measured_.jitter = jitter_of(steps);
  measured_.speeds = speeds_of(steps);
  const std::vector<TimedSum> inside = sums_of(timed, false, {});
  if (!inside.empty()) measured_.inside = fitted_link(inside);
  const std::vector<TimedSum> between = sums_of(timed, true, measured_.inside);
  if (!between.empty()) measured_.between = fitted_link(between);
  latency_is_known_ = measured_.inside.latency_seconds + measured_.between.latency_seconds > 0;
  double all = 0;
  for (const Bucket& bucket : buckets) all += static_cast<double>(bucket.bytes);
  std::vector<double> shares;
  for (const Bucket& bucket : buckets) {
    shares.push_back((shares.empty() ? 0 : shares.back()) +
                     static_cast<double>(bucket.bytes) / all);
  }
  const std::vector<double> ready =
      request.ready ? request.ready(**run, shares) : std::vector<double>{};
  ready_by_flops_ = !ready.empty();
  for (size_t i = 0; i < buckets.size(); ++i) {
    const double by_bytes = (1 + 2 * shares[i]) / 3;
    measured_.buckets.push_back(
        {static_cast<double>(buckets[i].bytes), ready_by_flops_ ? ready[i] : by_bytes});
  }
  asked_ = measured_;
  if (request.per_host) asked_.per_host = *request.per_host;
  if (request.accumulate) asked_.accumulate = *request.accumulate;
  if (request.network) {
    asked_.between = {request.network->bits_per_second / 8, request.network->latency_seconds};
  }
  for (size_t i = 0; i < buckets.size(); ++i) {
    asked_.buckets[i].bytes *= bytes_factor(buckets[i], request.gradient_type);
  }
  if (!has_sums(steps.back())) return;
  const double wanted = steps.back().step_seconds();
  const auto reached = [&](double slowing) {
    SimulatedJob job = measured_;
    job.per_host = steps.back().per_host;
    job.slowing = slowing;
    return simulated(job, steps.back().ranks);
  };
  if (reached(0) >= wanted || reached(most_slowing) < wanted) return;  // it is not that
  double low = 0, high = most_slowing;
  for (int i = 0; i < halvings; ++i) {
    const double middle = (low + high) / 2;
    (reached(middle) < wanted ? low : high) = middle;
  }
  slowing_ = high;
}

ExchangeParts ExchangeModel::measured_parts(const MeasuredSize& size, bool slows) const {
  if (size.ranks == 1) return {};
  SimulatedJob job = measured_;
  job.per_host = size.per_host;
  return parts_of(job, size.ranks, slows ? slowing_ : 0);
}

ExchangeParts ExchangeModel::asked_parts(int64_t ranks, bool slows, double reached) const {
  if (ranks == 1) return {};
  SimulatedJob job = asked_;
  if (crosses_hosts(ranks)) job.between.bytes_per_second *= reached;
  return parts_of(job, ranks, slows ? slowing_ : 0);
}

Maybe<double> ExchangeModel::enough(int64_t ranks, double seconds, double least, double most,
                                    void (*set)(Link& link, double value)) const {
  const auto does = [&](double value) {
    SimulatedJob job = asked_;
    set(crosses_hosts(ranks) ? job.between : job.inside, value);
    const double compute = job.compute_seconds * static_cast<double>(job.accumulate);
    return simulated(job, ranks) - compute <= seconds;
  };
  const bool does_by_best = does(most);
  if (!does_by_best) return Unknown{"no network does: the rest of a step takes too long"};
  double low = std::log(least), high = std::log(most);
  for (int i = 0; i < halvings; ++i) {
    const double middle = (low + high) / 2;
    (does(std::exp(middle)) ? high : low) = middle;
  }
  return std::exp(high);
}

Maybe<double> ExchangeModel::enough_bits_per_second(int64_t ranks, double seconds) const {
  Maybe<double> bytes = enough(ranks, seconds, 1e5, 1e14,
                               [](Link& link, double value) { link.bytes_per_second = value; });
  if (bytes) *bytes.value *= 8;
  return bytes;
}

Maybe<double> ExchangeModel::enough_latency_seconds(int64_t ranks, double seconds) const {
  Maybe<double> rate = enough(ranks, seconds, 1e-1, 1e10, [](Link& link, double per_second) {
    link.latency_seconds = 1 / per_second;
  });
  if (rate) rate = 1 / *rate;
  return rate;
}

std::vector<std::string> ExchangeModel::assumptions() const {
  std::vector<std::string> texts;
  texts.emplace_back(ready_by_flops_
                         ? "gradients are ready as the FLOPs of the network say, of which the "
                           "backward pass has two thirds"
                         : "gradients are ready evenly over the last two thirds of a step");
  if (!latency_is_known_) {
    texts.emplace_back("the sums that were timed show no latency, as of buckets of one size");
  }
  const double widest = std::ranges::max(measured_.jitter);
  texts.push_back("each rank has steps like those of the fewest ranks, of which the longest took " +
                  signed_percent(widest - 1, 1) + " more than their mean");
  if (slowing_ > 0) {
    texts.push_back("computation takes up to " + percent(slowing_) +
                    " longer beside a sum: half of the possibilities hold this for what steps of "
                    "several ranks take more");
  }
  return texts;
}

}  // namespace nearmetal
