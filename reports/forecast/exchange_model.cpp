#include "reports/forecast/exchange_model.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "base/text.h"
#include "reports/document/steps.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

constexpr double unlimited = 1e30;     // bytes per second
constexpr double most_slowing = 1;     // twice the time
constexpr int halvings = 24;           // of a search
constexpr uint64_t seeds = 4;          // draws of ranks, the same ones every time
constexpr double rank_steps = 10'000;  // of a simulation, in steps within these bounds
constexpr double fewest_steps = 8, most_steps_of_seed = 1000;

double simulated(const SimulatedJob& job, int64_t ranks) {
  const auto steps = static_cast<int64_t>(
      std::clamp(rank_steps / static_cast<double>(ranks), fewest_steps, most_steps_of_seed));
  double sum = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) sum += mean_step_seconds(job, ranks, steps, seed);
  return sum / seeds;
}

ExchangeParts parts_of(SimulatedJob job, int64_t ranks, double slowing) {
  if (ranks == 1) return {};
  const double full = simulated(job, ranks);
  job.slowing = slowing;
  const double slowed = slowing > 0 ? simulated(job, ranks) : full;
  job.slowing = job.inside.latency_seconds = job.between.latency_seconds = 0;
  const double without_latency = simulated(job, ranks);
  job.inside.bytes_per_second = job.between.bytes_per_second = unlimited;
  const double silent = simulated(job, ranks);
  return {silent - job.compute_seconds * static_cast<double>(job.accumulate),
          without_latency - silent, full - without_latency, slowed - full};
}

bool is_timed(const Bucket& bucket) { return bucket.bytes > 0 && bucket.seconds > 0; }

const std::vector<Bucket>* buckets_of(const MeasuredSize& size) {
  for (const SetRun* run : size.runs) {
    const auto& found = run->run.communication;
    if (size.per_host < 1 || !found || found->buckets.empty()) continue;
    if (std::ranges::all_of(found->buckets, is_timed)) return &found->buckets;
  }
  return nullptr;
}

// Latency and time of a byte that fit best, relative to each sum; neither is negative. Of sums
// within hosts, or of those between them, which were the first inside.
Link fitted_link(const std::vector<MeasuredSize>& sizes, bool between, const Link& inside) {
  double mm = 0, mb = 0, bb = 0, m = 0, b = 0;
  for (const MeasuredSize& size : sizes) {
    const auto per_host = static_cast<double>(size.per_host);
    const double hosts = static_cast<double>(size.ranks) / per_host;
    if (size.ranks < 2 || (hosts > 1) != between || !has_sums(size)) continue;
    const double count = between ? hosts : per_host;
    for (const SetRun* run : size.runs) {
      if (!run->run.communication) continue;
      for (const Bucket& bucket : run->run.communication->buckets) {
        if (!is_timed(bucket)) continue;
        const auto bytes = static_cast<double>(bucket.bytes);
        const double first =
            between && inside.bytes_per_second > 0 ? ring_seconds(bytes, per_host, inside) : 0;
        const double seconds = std::max(bucket.seconds - first, bucket.seconds / 10);
        const double messages = 2 * (count - 1) / seconds, sent = messages * bytes / count;
        mm += messages * messages;
        mb += messages * sent;
        bb += sent * sent;
        m += messages;
        b += sent;
      }
    }
  }
  if (mm == 0) return {};
  const double determinant = mm * bb - mb * mb;
  double latency =
      determinant > 1e-9 * mm * bb ? std::max(0.0, (bb * m - mb * b) / determinant) : 0;
  const double byte = (b - mb * latency) / bb;
  if (byte <= 0) latency = m / mm;
  return {byte > 0 ? 1 / byte : unlimited, latency};
}

// Steps of the fewest ranks without their drift, as factors of their mean.
std::vector<double> jitter_of(const std::vector<MeasuredSize>& sizes) {
  constexpr size_t enough = 5000;
  std::vector<double> jitter;
  for (const SetRun* run : sizes.front().runs) {
    if (!run->run.window || run->run.ranks.empty() || jitter.size() > enough) continue;
    const std::span<const double> steps = window_steps(run->run, 0);
    if (steps.size() < 2) continue;
    const double drift = relative_drift(steps).value_or(0), middle = mean(steps);
    for (size_t i = 0; i < steps.size(); ++i) {
      const double along = static_cast<double>(i) / static_cast<double>(steps.size() - 1) - 0.5;
      jitter.push_back(steps[i] / (middle * std::max(0.1, 1 + drift * along)));
    }
  }
  if (jitter.empty()) return {1};
  const double middle = mean(jitter);
  for (double& factor : jitter) factor /= middle;
  return jitter;
}

// What ranks of a job computed, which is what they did not wait, as factors of their mean.
std::vector<double> speeds_of(const std::vector<MeasuredSize>& sizes) {
  std::vector<double> speeds;
  for (const MeasuredSize& size : sizes) {
    for (const SetRun* run : size.runs) {
      std::vector<double> seconds;
      for (const Rank& rank : run->run.ranks) {
        if (!rank.step_time || !rank.exposed_communication_seconds) continue;
        seconds.push_back(rank.step_time->median_seconds - *rank.exposed_communication_seconds);
      }
      if (size.ranks < 2 || std::ssize(seconds) != size.ranks || std::ranges::min(seconds) <= 0) {
        continue;
      }
      for (const double own : seconds) speeds.push_back(own / mean(seconds));
    }
  }
  return speeds.empty() ? std::vector<double>{1} : speeds;
}

double bytes_factor(const Bucket& bucket, const std::optional<GradientType>& asked) {
  if (!asked || *asked == GradientType::computed) return 1;
  if (!bucket.type) {
    throw std::invalid_argument("--gradient-type: these reports do not tell the type of gradients");
  }
  return (*asked == GradientType::fp32 ? 4.0 : 2.0) /
         static_cast<double>(element_bytes(*bucket.type));
}

}  // namespace

bool has_sums(const MeasuredSize& size) { return buckets_of(size) != nullptr; }

ExchangeModel::ExchangeModel(const std::vector<MeasuredSize>& steps,
                             const std::vector<MeasuredSize>& all, const ForecastRequest& request,
                             int64_t per_host) {
  const auto& timed = std::ranges::any_of(steps, has_sums) ? steps : all;
  const MeasuredSize& size = *std::ranges::find_if(timed.rbegin(), timed.rend(), has_sums);
  const MeasuredSize& fewest = steps.front();
  measured_ = {.compute_seconds = fewest.step_seconds() / static_cast<double>(fewest.accumulate),
               .accumulate = fewest.accumulate,
               .speeds = speeds_of(steps),
               .jitter = jitter_of(steps),
               .inside = fitted_link(timed, false, {}),
               .per_host = per_host};
  measured_.between = fitted_link(timed, true, measured_.inside);
  double bytes = 0;
  std::vector<double> shares;
  for (const Bucket& bucket : *buckets_of(size)) {
    shares.push_back(bytes += static_cast<double>(bucket.bytes));
  }
  for (double& share : shares) share /= bytes;
  std::vector<double> ready;
  if (request.ready) ready = request.ready(*size.runs.front(), shares);
  ready_is_known_ = !ready.empty();
  for (const double share : shares) {
    if (!ready_is_known_) ready.push_back((1 + 2 * share) / 3);
  }
  for (size_t i = 0; i < shares.size(); ++i) {
    const Bucket& bucket = (*buckets_of(size))[i];
    measured_.buckets.push_back({static_cast<double>(bucket.bytes), ready[i]});
  }
  asked_ = measured_;
  asked_.per_host = request.per_host.value_or(per_host);
  asked_.accumulate = request.accumulate.value_or(measured_.accumulate);
  if (request.network) {
    asked_.between = {request.network->bits_per_second / 8, request.network->latency_seconds};
  }
  for (size_t i = 0; i < shares.size(); ++i) {
    asked_.buckets[i].bytes *= bytes_factor((*buckets_of(size))[i], request.gradient_type);
  }
  if (has_sums(steps.back())) fit_slowing(steps.back());
}

// So that its steps take as long as measured; none where that is not within the bounds.
void ExchangeModel::fit_slowing(const MeasuredSize& size) {
  SimulatedJob job = measured_;
  job.per_host = size.per_host;
  const auto falls_short = [&](double slowing) {
    job.slowing = slowing;
    return simulated(job, size.ranks) < size.step_seconds();
  };
  if (!falls_short(0) || falls_short(most_slowing)) return;
  double low = 0, high = most_slowing;
  for (int i = 0; i < halvings; ++i) {
    const double middle = (low + high) / 2;
    (falls_short(middle) ? low : high) = middle;
  }
  slowing_ = high;
}

ExchangeParts ExchangeModel::measured_parts(int64_t ranks, int64_t per_host, bool slows) const {
  SimulatedJob job = measured_;
  job.per_host = per_host;
  return parts_of(job, ranks, slows ? slowing_ : 0);
}

ExchangeParts ExchangeModel::asked_parts(int64_t ranks, bool slows, double reached) const {
  SimulatedJob job = asked_;
  job.between.bytes_per_second *= reached;
  return parts_of(job, ranks, slows ? slowing_ : 0);
}

// Of a value of which more is better, up to 1e10 times the least.
Maybe<double> ExchangeModel::enough(int64_t ranks, double seconds, double least,
                                    void (*set)(Link& link, double value)) const {
  SimulatedJob job = asked_;
  const double compute = job.compute_seconds * static_cast<double>(job.accumulate);
  const auto does = [&](double value) {
    set(crosses_hosts(ranks) ? job.between : job.inside, value);
    return simulated(job, ranks) - compute <= seconds;
  };
  double low = std::log(least), high = std::log(1e10 * least);
  if (!does(std::exp(high))) return Unknown{"no network does: the rest of a step takes too long"};
  for (int i = 0; i < halvings; ++i) {
    const double middle = (low + high) / 2;
    (does(std::exp(middle)) ? high : low) = middle;
  }
  return std::exp(high);
}

Maybe<double> ExchangeModel::enough_bits_per_second(int64_t ranks, double seconds) const {
  return enough(ranks, seconds, 1e5,
                [](Link& link, double bits) { link.bytes_per_second = bits / 8; });
}

Maybe<double> ExchangeModel::enough_latency_seconds(int64_t ranks, double seconds) const {
  const Maybe<double> rate = enough(ranks, seconds, 1e-1, [](Link& link, double per_second) {
    link.latency_seconds = 1 / per_second;
  });
  return rate ? Maybe(1 / *rate) : rate;
}

std::vector<std::string> ExchangeModel::assumptions() const {
  std::vector<std::string> texts = {
      ready_is_known_
          ? "gradients are ready by the FLOPs of the network, two thirds of them backward"
          : "gradients are ready evenly over the last two thirds of a step",
      "each rank has steps like those of the fewest ranks, the longest of them " +
          signed_percent(std::ranges::max(measured_.jitter) - 1, 1)};
  if (slowing_ > 0) {
    texts.push_back("half of the possibilities hold that computation takes " + percent(slowing_) +
                    " longer beside a sum, which is what steps of several ranks take more");
  }
  return texts;
}

}  // namespace nearmetal
