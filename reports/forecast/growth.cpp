#include "reports/forecast/growth.h"

#include <algorithm>
#include <boost/math/special_functions/erf.hpp>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include "base/text.h"
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

}  // namespace nearmetal
