#include "reports/forecast/growth.h"

#include <algorithm>
#include <boost/math/special_functions/erf.hpp>
#include <cmath>
#include <numbers>
#include <numeric>
#include <set>
#include <stdexcept>

namespace nearmetal {
namespace {

constexpr double unlikely_growth = 6;      // power of the share of laws that are bounded
constexpr int steps_of_shares = 10;        // of the mixtures
constexpr double weight_of_deviation = 2;  // in points, of what was held of it before

// Within 0 and 1, by splitmix64: distributions of the standard library differ between libraries.
double uniform(uint64_t& state) {
  uint64_t bits = state += 0x9e3779b97f4a7c15;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return (static_cast<double>((bits ^ (bits >> 31)) >> 11) + 0.5) * 0x1p-53;
}

// Of a standard normal distribution, from its tail beyond `bound`, and the logarithm of that tail.
std::pair<double, double> beyond(double bound, uint64_t& state) {
  constexpr double far = 30;  // where the tail is an exponential one
  const double u = uniform(state);
  if (bound > far) {
    const double scale = bound * std::sqrt(2 * std::numbers::pi);
    return {bound - std::log(u) / bound, -bound * bound / 2 - std::log(scale)};
  }
  const double tail = std::erfc(bound / std::numbers::sqrt2) / 2;
  return {std::numbers::sqrt2 * boost::math::erfc_inv(2 * u * tail), std::log(tail)};
}

double hosts_of(const StepSize& size, double per_host) {
  return static_cast<double>(size.ranks) / per_host;
}
double per_host_of(const StepSize& size, const Hypothesis& hypothesis) {
  const int64_t most = size.per_host > 0 ? size.per_host : hypothesis.per_host;
  return static_cast<double>(std::min(size.ranks, most));
}

// What the coefficients of the parts are multiplied with.
StepParts columns_of(const StepSize& size, const Hypothesis& hypothesis,
                     const std::array<double, 4>& law) {
  const double work = size.accumulate * size.batch, ranks = per_host_of(size, hypothesis);
  const auto growth = [&](double n) {
    if (n <= 1) return 0.0;
    return law[0] * (hypothesis.with_work ? work : 1) + law[1] * 2 * (n - 1) / n +
           law[2] * std::log2(n) + law[3] * (n - 1);
  };
  return {work, size.accumulate, growth(ranks), growth(hosts_of(size, ranks))};
}

}  // namespace

// The posterior of one law: normal but for the bounds of its coefficients. `lower`: the triangle L
// of the inverse L L' of their covariance.
struct Growth::Fit {
  std::vector<size_t> terms;  // parts that the points can tell, or the prior must
  std::vector<double> mean;   // of their coefficients
  std::vector<std::vector<double>> lower;
  double squares = 0;  // of relative residuals
  double log_likelihood = 0;

  // L' x = b.
  std::vector<double> backward(std::vector<double> b) const {
    for (size_t i = b.size(); i-- > 0;) {
      for (size_t k = i + 1; k < b.size(); ++k) b[i] -= lower[k][i] * b[k];
      b[i] /= lower[i][i];
    }
    return b;
  }
  std::vector<double> solution(std::vector<double> b) const {
    for (size_t i = 0; i < b.size(); ++i) {
      for (size_t k = 0; k < i; ++k) b[i] -= lower[i][k] * b[k];
      b[i] /= lower[i][i];
    }
    return backward(std::move(b));
  }
};

Growth::Growth(std::vector<StepPoint> points, std::vector<Hypothesis> hypotheses, double deviation,
               double usual_cost)
    : points_(std::move(points)),
      hypotheses_(std::move(hypotheses)),
      usual_cost_(usual_cost),
      deviation_(deviation) {
  if (points_.empty()) throw std::invalid_argument("a forecast needs a measured size");
  micro_batch_seconds_ = INFINITY;
  for (const auto& [size, seconds] : points_) {
    micro_batch_seconds_ = std::min(micro_batch_seconds_, seconds / size.accumulate / size.batch);
  }
  struct Candidate {
    size_t hypothesis = 0;
    Law law;
    Fit best;
  };
  std::vector<Candidate> candidates;
  double squares = INFINITY;
  for (size_t i = 0; i < hypotheses_.size(); ++i) {
    for (const Law& law : laws_for(hypotheses_[i])) {
      const Fit& best =
          candidates.emplace_back(Candidate{i, law, best_fit(hypotheses_[i], law)}).best;
      squares = std::min(squares, best.squares);
    }
  }
  const double freedom = std::max(0.0, static_cast<double>(points_.size()) - 2);
  deviation_ =
      std::max(deviation, std::sqrt((weight_of_deviation * deviation * deviation + squares) /
                                    (weight_of_deviation + freedom)));
  for (const auto& [hypothesis, law, best] : candidates) {
    const Fit found = posterior(hypotheses_[hypothesis], law, best, deviation_ / deviation);
    for (int n = 0; n < draws_of_a_law; ++n) draw_from(found, hypothesis, law);
  }
  const auto weight_of = [](const Sample& sample) { return sample.possibility.weight; };
  const double most = weight_of(*std::ranges::max_element(samples_, {}, weight_of));
  for (auto& [possibility, law] : samples_) {
    possibility.weight = std::exp(possibility.weight - most);
  }
}

std::vector<Growth::Law> Growth::laws_for(const Hypothesis& hypothesis) const {
  std::set<double> hosts, ranks;
  for (const StepPoint& point : points_) {
    ranks.insert(per_host_of(point.size, hypothesis));
    hosts.insert(hosts_of(point.size, per_host_of(point.size, hypothesis)));
  }
  constexpr size_t enough = 3;  // sizes, to tell growth without bound
  constexpr int all = steps_of_shares;
  const int most_linear = std::max(hosts.size(), ranks.size()) >= enough ? all : 0;
  std::vector<Law> laws;
  for (int linear = 0; linear <= most_linear; ++linear) {
    for (int rounds = 0; rounds <= all - linear; ++rounds) {
      for (int ring = 0; ring <= all - linear - rounds; ++ring) {
        Law& law = laws.emplace_back(Law{double(all - linear - rounds - ring), double(ring),
                                         double(rounds), double(linear)});
        for (double& share : law) share /= all;
      }
    }
  }
  return laws;
}

// The best coefficients that are not negative, whatever is usual.
Growth::Fit Growth::best_fit(const Hypothesis& hypothesis, const Law& law) const {
  StepParts priors, wanted;
  priors.fill(1e3 * micro_batch_seconds_);
  wanted.fill(1);
  while (true) {
    Fit found = fit(hypothesis, law, priors, wanted);
    const auto least = std::ranges::min_element(found.mean);
    const size_t worst = found.terms[least - found.mean.begin()];
    if (*least >= 0 || worst == 0) return found;
    wanted[worst] = 0;
  }
}

// With costs that are usual, or as large as the points show beyond two standard errors, which are
// `wider` than those of the best fit.
Growth::Fit Growth::posterior(const Hypothesis& hypothesis, const Law& law, const Fit& best,
                              double wider) const {
  StepParts priors;
  priors.fill(usual_cost_ * micro_batch_seconds_);
  for (size_t k = 0; k < best.terms.size(); ++k) {
    std::vector<double> unit(best.terms.size());
    unit[k] = 1;
    const double error = wider * std::sqrt(best.solution(unit)[k]);
    double& prior = priors[best.terms[k]];
    prior = std::max(prior, best.mean[k] - 2 * error);
  }
  return fit(hypothesis, law, priors);
}

Growth::Fit Growth::fit(const Hypothesis& hypothesis, const Law& law, const StepParts& priors,
                        StepParts wanted) const {
  std::vector<StepParts> rows;
  std::vector<double> seconds;
  for (size_t i = 0; i < points_.size(); ++i) {
    rows.push_back(columns_of(points_[i].size, hypothesis, law));
    const bool knows = !hypothesis.known_seconds.empty();
    seconds.push_back(points_[i].seconds - (knows ? hypothesis.known_seconds[i] : 0));
  }
  Fit fit;
  for (size_t term = 0; term < wanted.size(); ++term) {
    // One that is the computation times a factor cannot be told from it.
    const double factor = rows.front()[term] / rows.front()[0];
    const bool is_alike = factor != 0 && std::ranges::all_of(rows, [&](const StepParts& row) {
                            return std::abs(row[term] - factor * row[0]) < 1e-9 * row[0];
                          });
    if (wanted[term] > 0 && (term == 0 || !is_alike)) fit.terms.push_back(term);
  }
  const size_t count = fit.terms.size();
  std::vector<double> right(count);
  fit.lower.assign(count, std::vector<double>(count));
  double log_prior = 0, penalty = 0, log_determinant = 0;
  for (size_t a = 0; a < count; ++a) {
    const double prior = a == 0 ? 0 : 1 / (priors[fit.terms[a]] * priors[fit.terms[a]]);
    if (a > 0) log_prior += std::log(prior);
    fit.lower[a][a] = prior;
    for (size_t i = 0; i < rows.size(); ++i) {
      const double weight = 1 / std::pow(deviation_ * points_[i].seconds, 2);
      right[a] += weight * rows[i][fit.terms[a]] * seconds[i];
      for (size_t b = 0; b <= a; ++b) {
        fit.lower[a][b] += weight * rows[i][fit.terms[a]] * rows[i][fit.terms[b]];
      }
    }
  }
  for (size_t a = 0; a < count; ++a) {  // Cholesky
    for (size_t b = 0; b <= a; ++b) {
      double& entry = fit.lower[a][b];
      for (size_t k = 0; k < b; ++k) entry -= fit.lower[a][k] * fit.lower[b][k];
      entry = a == b ? std::sqrt(std::max(entry, 1e-300)) : entry / fit.lower[b][b];
    }
    log_determinant += 2 * std::log(fit.lower[a][a]);
  }
  fit.mean = fit.solution(right);
  for (size_t a = 1; a < count; ++a) penalty += std::pow(fit.mean[a] / priors[fit.terms[a]], 2);
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t a = 0; a < count; ++a) seconds[i] -= fit.mean[a] * rows[i][fit.terms[a]];
    fit.squares += std::pow(seconds[i] / points_[i].seconds, 2);
  }
  const double misfit = fit.squares / (deviation_ * deviation_) + penalty;
  fit.log_likelihood = unlikely_growth * std::log(1 - law[2] - law[3] + 1e-9) -
                       (misfit + log_determinant - log_prior) / 2;
  return fit;
}

// Coefficients one after another, each given those before it and its bound, 0 (Geweke,
// Hajivassiliou and Keane). The weight is a logarithm as yet.
void Growth::draw_from(const Fit& fit, size_t hypothesis, const Law& law) {
  Possibility drawn{.weight = fit.log_likelihood,
                    .hypothesis = hypothesis,
                    .noise = beyond(-INFINITY, drawn_).first};
  std::vector<double> off(fit.mean.size());
  for (size_t k = off.size(); k-- > 0;) {
    double sum = 0;
    for (size_t j = k + 1; j < off.size(); ++j) sum += fit.lower[j][k] * off[j];
    const auto [z, log_tail] =
        beyond(k == 0 ? -INFINITY : sum - fit.lower[k][k] * fit.mean[k], drawn_);
    off[k] = (z - sum) / fit.lower[k][k];
    drawn.weight += log_tail;
    drawn.seconds[fit.terms[k]] = fit.mean[k] + off[k];
  }
  samples_.push_back({drawn, law});
}

std::vector<Possibility> Growth::at(const StepSize& size) const {
  double ranks = 1, batch = INFINITY;  // measured
  for (const StepPoint& point : points_) {
    ranks = std::max(ranks, static_cast<double>(point.size.ranks));
    batch = std::min(batch, point.size.batch);
  }
  const double doublings = std::max(0.0, std::log2(static_cast<double>(size.ranks) / ranks)) +
                           std::max(0.0, std::log2(batch / size.batch));
  const double deviation = deviation_ * std::sqrt(1 + doublings * doublings);
  std::vector<Possibility> possibilities;
  for (const auto& [possibility, law] : samples_) {
    Possibility& one = possibilities.emplace_back(possibility);
    const StepParts columns = columns_of(size, hypotheses_[one.hypothesis], law);
    for (size_t k = 0; k < columns.size(); ++k) one.seconds[k] *= columns[k];
    one.noise = std::exp(deviation * one.noise);
  }
  return possibilities;
}

std::vector<double> weighted_quantiles(Weighted values, const std::vector<double>& shares) {
  if (values.empty()) throw std::invalid_argument("no values have no quantile");
  std::ranges::sort(values);
  double sum = 0, below = 0;
  for (const auto& [value, weight] : values) sum += weight;
  std::vector<double> found;
  for (const auto& [value, weight] : values) {
    below += weight;
    while (found.size() < shares.size() && below >= shares[found.size()] * sum) {
      found.push_back(value);
    }
  }
  found.resize(shares.size(), values.back().first);
  return found;
}

}  // namespace nearmetal
