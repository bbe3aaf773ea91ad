#include "reports/forecast/step_time.h"

#include <algorithm>
#include <boost/math/special_functions/erf.hpp>
#include <cmath>
#include <numbers>
#include <random>
#include <stdexcept>
#include <utility>

#include "base/text.h"
#include "reports/document/steps.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

// What is held of the laws before there are points. Chosen by the series of docs/forecast.md.
constexpr double usual_power = -1.15, deviation_of_power = 0.6;
constexpr double freedom_of_costs = 6;       // of Student's t
constexpr double unlikely_deviation = 15;    // power of a larger one than that of runs
constexpr size_t walkers = 100;              // of an ensemble
constexpr int first_rounds = 500;            // until it is spread as the posterior is
constexpr int kept_rounds = 40, every = 20;  // of those after them

// Within 0 and 1, by splitmix64: distributions of the standard library differ between libraries.
double uniform(uint64_t& state) {
  uint64_t bits = state += 0x9e3779b97f4a7c15;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return (static_cast<double>((bits ^ (bits >> 31)) >> 11) + 0.5) * 0x1p-53;
}

double normal(uint64_t& state) {
  return std::numbers::sqrt2 * boost::math::erfc_inv(2 * uniform(state));
}

// g of so many, which is 1 of two.
double growth_of(double count, double power) {
  if (count <= 1) return 0;
  const double rounds = std::log2(count);
  if (std::abs(power) < 1e-6) return rounds;
  return std::expm1(power * rounds * std::numbers::ln2) / std::expm1(power * std::numbers::ln2);
}

constexpr double unlimited = 1e30;     // bytes per second
constexpr double most_slowing = 1;     // twice the time
constexpr uint64_t seeds = 4;          // draws of ranks, the same ones every time
constexpr double rank_steps = 10'000;  // of a simulation, in steps within these bounds
constexpr double fewest_steps = 8, most_steps_of_seed = 1000;

struct Sum {
  double start = 0, end = 0;
};

struct SimulatedRank {
  double time = 0;     // now
  double share = 0;    // of the last micro-batch that is computed
  double seconds = 0;  // that it takes with nothing beside it
  size_t sum = 0;      // the first that is not over by now
};

double drawn(const std::vector<double>& values, std::mt19937_64& engine) {
  return values.size() == 1 ? values[0] : values[engine() % values.size()];
}

// Computes up to a share. Every sum that began by then is known.
void compute(SimulatedRank& rank, double share, const std::vector<Sum>& sums, double slowing) {
  double left = (share - rank.share) * rank.seconds;
  rank.share = share;
  while (rank.sum < sums.size() && slowing > 0) {
    const Sum& sum = sums[rank.sum];
    const double before = std::max(0.0, sum.start - rank.time);
    if (left <= before) break;
    const double begin = std::max(rank.time, sum.start);
    const double beside = std::max(0.0, sum.end - begin);  // at most
    const double done = std::min(left - before, beside / (1 + slowing));
    rank.time = begin + done * (1 + slowing);
    left -= before + done;
    if (rank.time < sum.end) break;
    ++rank.sum;
  }
  rank.time += left;
}

double simulated(const SimulatedJob& job, int64_t ranks) {
  const auto steps = static_cast<int64_t>(
      std::clamp(rank_steps / static_cast<double>(ranks), fewest_steps, most_steps_of_seed));
  double sum = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) sum += mean_step_seconds(job, ranks, steps, seed);
  return sum / seeds;
}

// The least value within the bounds that does, as all greater ones do; the upper bound if no less.
template <class Does>
double least_that(const Does& does, double low, double high) {
  constexpr int halvings = 24;
  for (int i = 0; i < halvings; ++i) {
    const double middle = (low + high) / 2;
    (does(middle) ? high : low) = middle;
  }
  return high;
}

bool is_timed(const Bucket& bucket) { return bucket.bytes > 0 && bucket.seconds > 0; }

// What sums took by seconds of a byte and of a message, between hosts and then inside them: those
// that fit best, relative to each sum, and are not negative.
void fit_links(SimulatedJob& job, const MeasuredSizes& sizes) {
  std::array<std::array<double, 4>, 4> products{};
  std::array<double, 4> right{}, fitted{};
  for (const MeasuredSize& size : sizes) {
    if (timed_sums(size) == nullptr) continue;
    const auto inside = static_cast<double>(std::min(size.ranks, size.per_host));
    const double hosts = static_cast<double>(size.ranks) / inside;
    for (const SetRun* run : size.runs) {
      if (!run->run.communication) continue;
      for (const Bucket& bucket : run->run.communication->buckets) {
        if (!is_timed(bucket)) continue;
        const auto bytes = static_cast<double>(bucket.bytes);
        const double between = 2 * (hosts - 1) / bucket.seconds;
        const double within = 2 * (inside - 1) / bucket.seconds;
        const std::array columns = {between * bytes / hosts, between, within * bytes / inside,
                                    within};
        for (size_t i = 0; i < columns.size(); ++i) {
          right[i] += columns[i];
          for (size_t k = 0; k < columns.size(); ++k) products[i][k] += columns[i] * columns[k];
        }
      }
    }
  }
  // One after another: sums of one length do not tell what a message takes, nor those of several
  // hosts alone what they take inside.
  for (int round = 0; round < 10'000; ++round) {
    for (size_t i = 0; i < fitted.size(); ++i) {
      if (products[i][i] == 0) continue;
      const double sum = std::inner_product(fitted.begin(), fitted.end(), products[i].begin(), 0.0);
      fitted[i] = std::max(0.0, fitted[i] + (right[i] - sum) / products[i][i]);
    }
  }
  const auto link = [&](size_t i) {
    return products[i][i] > 0 ? Link{fitted[i] > 0 ? 1 / fitted[i] : unlimited, fitted[i + 1]}
                              : Link{};
  };
  job.between = link(0);
  job.inside = products[2][2] > 0 ? link(2) : job.between;  // as fast, where no host has several
}

std::vector<double> as_factors_of_mean(const std::vector<double>& values) {
  return transformed(values, [middle = mean(values)](double value) { return value / middle; });
}

// Steps of the fewest ranks without their drift, as factors of their mean.
std::vector<double> jitter_of(const MeasuredSizes& sizes) {
  constexpr size_t enough = 5000;
  std::vector<double> jitter;
  for (const SetRun* run : sizes.front().runs) {
    if (!run->run.window || run->run.ranks.empty() || jitter.size() > enough) continue;
    const std::span<const double> measured = window_steps(run->run, 0);
    if (measured.size() < 2) continue;
    std::vector<double> steps(measured.begin(), measured.end());
    const double drift = relative_drift(steps).value_or(0);
    for (size_t i = 0; i < steps.size(); ++i) {
      const double along = static_cast<double>(i) / static_cast<double>(steps.size() - 1) - 0.5;
      steps[i] /= std::max(0.1, 1 + drift * along);
    }
    append(jitter, as_factors_of_mean(steps));
  }
  return jitter.empty() ? std::vector{1.0} : jitter;
}

// What ranks of a job computed, which is what they did not wait, as factors of their mean.
std::vector<double> speeds_of(const MeasuredSizes& sizes) {
  std::vector<double> speeds;
  for (const MeasuredSize& size : sizes) {
    for (const SetRun* run : size.runs) {
      std::vector<double> seconds;
      for (const Rank& rank : run->run.ranks) {
        if (!rank.step_time || !rank.exposed_communication_seconds) continue;
        seconds.push_back(rank.step_time->median_seconds - *rank.exposed_communication_seconds);
      }
      const bool tells_all = size.ranks > 1 && std::ssize(seconds) == size.ranks;
      if (tells_all && std::ranges::min(seconds) > 0) append(speeds, as_factors_of_mean(seconds));
    }
  }
  return speeds.empty() ? std::vector{1.0} : speeds;
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

Growth::Growth(std::vector<StepPoint> points, std::vector<Hypothesis> hypotheses, double deviation,
               double usual_cost)
    : points_(std::move(points)), hypotheses_(std::move(hypotheses)), least_deviation_(deviation) {
  if (points_.empty()) throw std::invalid_argument("a forecast needs a measured size");
  const auto& [fewest, seconds] = points_.front();
  usual_seconds_ = usual_cost * seconds / static_cast<double>(fewest.accumulate);
  uint64_t state = 0;
  const auto up_to = [&](double most) { return most * uniform(state); };
  struct Walker {
    Draw draw;
    double log_posterior = 0;
  };
  std::vector<Walker> all(walkers);
  for (auto& [draw, log] : all) {
    draw = {seconds / fewest.samples() * (1 - up_to(0.2)),
            up_to(usual_seconds_),
            up_to(usual_seconds_),
            up_to(usual_seconds_),
            usual_power + deviation_of_power * normal(state),
            deviation * (1 + up_to(1)),
            up_to(static_cast<double>(hypotheses_.size()))};
    log = log_posterior(draw);
  }
  // Each walker is stretched from another one, by which no scale need be known (Goodman and Weare,
  // "Ensemble Samplers with Affine Invariance", 2010).
  for (int round = 1; round <= first_rounds + kept_rounds * every; ++round) {
    for (auto& [draw, log] : all) {
      const Draw& other = all[static_cast<size_t>(up_to(walkers))].draw;
      const double stretch = std::pow(1 + up_to(1), 2) / 2;
      Draw next = draw;
      for (size_t i = 0; i < next.size(); ++i) next[i] = std::lerp(other[i], draw[i], stretch);
      const double log_next = log_posterior(next);
      const double gain = (draw.size() - 1.0) * std::log(stretch) + log_next - log;
      if (!(std::log(uniform(state)) < gain)) continue;
      draw = next;
      log = log_next;
    }
    if (round <= first_rounds || round % every != 0) continue;
    for (const Walker& walker : all) draws_.push_back(walker.draw);
  }
  std::ranges::stable_sort(draws_, {}, [](const Draw& draw) { return draw[4]; });
}

StepParts Growth::parts_of(const JobSize& size, const Draw& draw) const {
  const auto& [of_sample, of_micro_batch, inside, between, power, deviation, which] = draw;
  const Hypothesis& hypothesis = hypothesis_of(draw);
  const int64_t most = size.per_host > 0 ? size.per_host : hypothesis.per_host;
  const auto ranks = static_cast<double>(size.ranks);
  const double per_host = std::min(ranks, static_cast<double>(most));
  const double work = hypothesis.slows ? size.samples() / points_.front().size.batch_or_one() : 1;
  const auto micro_batches = static_cast<double>(hypothesis.has_fixed_cost ? size.accumulate : 0);
  return {of_sample * size.samples(), of_micro_batch * micro_batches,
          inside * work * growth_of(per_host, power),
          between * work * growth_of(ranks / per_host, power)};
}

double Growth::log_posterior(const Draw& draw) const {
  const auto& [of_sample, of_micro_batch, inside, between, power, deviation, which] = draw;
  const auto hypotheses = static_cast<double>(hypotheses_.size());
  const double least = std::min({of_sample, of_micro_batch, inside, between, which});
  if (least < 0 || which >= hypotheses || deviation < least_deviation_) return -HUGE_VAL;
  double log = -std::pow((power - usual_power) / deviation_of_power, 2) / 2 -
               unlikely_deviation * std::log(deviation);
  for (const double cost : {of_micro_batch, inside, between}) {
    log -= (freedom_of_costs + 1) / 2 *
           std::log1p(std::pow(cost / usual_seconds_, 2) / freedom_of_costs);
  }
  const std::vector<double>& known = hypothesis_of(draw).known_seconds;
  for (size_t i = 0; i < points_.size(); ++i) {
    const auto& [size, seconds] = points_[i];
    const double rest = seconds - (known.empty() ? 0 : known[i]);
    const double off = (rest - total_seconds(parts_of(size, draw))) / seconds / deviation;
    log -= off * off / 2 + std::log(deviation);
  }
  return log;
}

std::vector<Possibility> Growth::at(const JobSize& size) const {
  const auto batch_of = [](const StepPoint& point) { return point.size.batch_or_one(); };
  const double smallest = std::ranges::min(transformed(points_, batch_of));
  const auto most = static_cast<double>(points_.back().size.ranks);
  const double doublings = std::max(0.0, std::log2(static_cast<double>(size.ranks) / most)) +
                           std::max(0.0, std::log2(smallest / size.batch_or_one()));
  const double farther = std::sqrt(1 + doublings * doublings);
  uint64_t state = 0;
  return transformed(draws_, [&](const Draw& draw) {
    return Possibility{hypothesis_of(draw).slows, std::exp(farther * draw[5] * normal(state)),
                       parts_of(size, draw)};
  });
}

double Growth::deviation() const {
  return mean(transformed(draws_, [](const Draw& draw) { return draw[5]; }));
}

double ring_seconds(double bytes, double count, const Link& link) {
  if (count <= 1) return 0;
  return 2 * (count - 1) * (link.latency_seconds + bytes / count / link.bytes_per_second);
}

double tree_seconds(double bytes, double count, const Link& link) {
  if (count <= 1) return 0;
  return 2 * std::ceil(std::log2(count)) * link.latency_seconds + 2 * bytes / link.bytes_per_second;
}

double sum_seconds(const SimulatedJob& job, double bytes, int64_t ranks) {
  const auto inside = static_cast<double>(std::min(ranks, job.per_host));
  const double hosts = std::ceil(static_cast<double>(ranks) / inside);
  const auto fastest = [&](double count, const Link& link) {
    return std::min(ring_seconds(bytes, count, link), tree_seconds(bytes, count, link));
  };
  return fastest(inside, job.inside) + fastest(hosts, job.between);
}

double mean_step_seconds(const SimulatedJob& job, int64_t ranks, int64_t steps, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<double> speeds(static_cast<size_t>(ranks));
  for (double& speed : speeds) speed = drawn(job.speeds, engine);
  std::vector<SimulatedRank> all(speeds.size());
  std::vector<Sum> sums;
  for (int64_t step = 0; step < steps; ++step) {
    sums.clear();
    for (size_t i = 0; i < all.size(); ++i) {
      const double seconds = job.compute_seconds * speeds[i] * drawn(job.jitter, engine);
      all[i].time += static_cast<double>(job.accumulate - 1) * seconds;
      all[i] = {.time = all[i].time, .seconds = seconds};
    }
    double free = 0;
    for (const SentBucket& bucket : job.buckets) {
      double ready = free;
      for (SimulatedRank& rank : all) {
        compute(rank, bucket.ready, sums, job.slowing);
        ready = std::max(ready, rank.time);
      }
      free = ranks > 1 ? ready + sum_seconds(job, bucket.bytes, ranks) : 0;
      if (ranks > 1) sums.push_back({ready, free});
    }
    // What is computed behind the last bucket, such as the update, waits for all sums.
    for (SimulatedRank& rank : all) {
      rank.time = std::max(rank.time, free) + (1 - rank.share) * rank.seconds;
    }
  }
  return std::ranges::max(all, {}, &SimulatedRank::time).time / static_cast<double>(steps);
}

StepParts exchange_parts(SimulatedJob job, const JobSize& size) {
  const int64_t ranks = size.ranks;
  if (ranks == 1) return {};
  if (size.per_host > 0) job.per_host = size.per_host;
  const double slowed = simulated(job, ranks);
  const double full = std::exchange(job.slowing, 0) > 0 ? simulated(job, ranks) : slowed;
  job.inside.latency_seconds = job.between.latency_seconds = 0;
  const double without_latency = simulated(job, ranks);
  job.inside.bytes_per_second = job.between.bytes_per_second = unlimited;
  const double silent = simulated(job, ranks);
  return {silent - job.compute_seconds * static_cast<double>(job.accumulate),
          without_latency - silent, full - without_latency, slowed - full};
}

const std::vector<Bucket>* timed_sums(const MeasuredSize& size) {
  for (const SetRun* run : size.runs) {
    const auto& found = run->run.communication;
    if (size.per_host < 1 || !found || found->buckets.empty()) continue;
    if (std::ranges::all_of(found->buckets, is_timed)) return &found->buckets;
  }
  return nullptr;
}

ExchangeModel::ExchangeModel(const MeasuredSizes& steps, const MeasuredSizes& all,
                             const ForecastRequest& request, int64_t per_host) {
  const auto& timed = std::ranges::any_of(steps, timed_sums) ? steps : all;
  const MeasuredSize& size = *std::ranges::find_if(timed.rbegin(), timed.rend(), timed_sums);
  const MeasuredSize& fewest = steps.front();
  measured = {.compute_seconds = fewest.step_seconds() / static_cast<double>(fewest.accumulate),
              .accumulate = fewest.accumulate,
              .speeds = speeds_of(steps),
              .jitter = jitter_of(steps),
              .per_host = per_host};
  fit_links(measured, timed);
  const std::vector<Bucket>& buckets = *timed_sums(size);
  double bytes = 0;
  std::vector<double> shares = transformed(
      buckets, [&](const Bucket& bucket) { return bytes += static_cast<double>(bucket.bytes); });
  for (double& share : shares) share /= bytes;
  std::vector<double> ready;
  if (request.ready) ready = request.ready(*size.runs.front(), shares);
  assumptions = {"gradients are ready by the FLOPs of the network, two thirds of them backward"};
  if (ready.empty()) {
    assumptions = {"gradients are ready evenly over the last two thirds of a step"};
    ready = transformed(shares, [](double share) { return (1 + 2 * share) / 3; });
  }
  assumptions.push_back("each rank has steps like those of the fewest ranks, the longest of them " +
                        signed_percent(std::ranges::max(measured.jitter) - 1, 1));
  for (size_t i = 0; i < buckets.size(); ++i) {
    measured.buckets.push_back({static_cast<double>(buckets[i].bytes), ready[i]});
  }
  if (const MeasuredSize& most = steps.back(); timed_sums(most) != nullptr) {
    SimulatedJob job = measured;
    job.per_host = most.per_host;
    const auto is_so_long = [&](double slowing) {
      job.slowing = slowing;
      return simulated(job, most.ranks) >= most.step_seconds();
    };
    // None where that is not within the bounds.
    if (!is_so_long(0) && is_so_long(most_slowing)) {
      measured.slowing = least_that(is_so_long, 0, most_slowing);
      assumptions.push_back("half of the possibilities hold that computation takes " +
                            percent(measured.slowing) +
                            " longer beside a sum, which is what steps of several ranks take more");
    }
  }
  asked = measured;
  asked.per_host = request.per_host.value_or(per_host);
  asked.accumulate = request.accumulate.value_or(measured.accumulate);
  asked.between = request.network.value_or(measured.between);
  for (size_t i = 0; i < buckets.size(); ++i) {
    asked.buckets[i].bytes *= bytes_factor(buckets[i], request.gradient_type);
  }
}

std::pair<Maybe<double>, Maybe<double>> ExchangeModel::enough(int64_t ranks, double seconds) const {
  const double compute = asked.compute_seconds * static_cast<double>(asked.accumulate);
  // Of a value of which more is better, from its logarithm.
  const auto least = [&](double most, const auto& set) -> Maybe<double> {
    SimulatedJob job = asked;
    job.slowing = 0;
    const auto does = [&](double logarithm) {
      set(job.crosses_hosts(ranks) ? job.between : job.inside, std::exp(logarithm));
      return simulated(job, ranks) - compute <= seconds;
    };
    const double high = std::log(most);
    if (!does(high)) return Unknown{"no network does: the rest of a step takes too long"};
    return std::exp(least_that(does, high - std::log(1e10), high));
  };
  Maybe<double> messages =
      least(1e9, [](Link& link, double per_second) { link.latency_seconds = 1 / per_second; });
  if (messages) *messages.value = 1 / *messages;
  return {least(1e15, [](Link& link, double bits) { link.bytes_per_second = bits / 8; }), messages};
}

}  // namespace nearmetal
