#include "reports/forecast/growth.h"

#include <algorithm>
#include <boost/math/special_functions/erf.hpp>
#include <cmath>
#include <numbers>
#include <random>
#include <set>
#include <stdexcept>

#include "base/text.h"

namespace nearmetal {
namespace {

constexpr double usual_cost = 0.07;    // deviation of the prior, of the least step
constexpr double unlikely_growth = 6;  // power of the share of laws that are bounded
constexpr int steps_of_shares = 10;    // of the mixtures
constexpr int draws_of_a_law = 40;
constexpr double weight_of_deviation = 2;  // in points, of what was held of it before

// Within 0 and 1; the distributions of the standard library differ between libraries.
double uniform(std::mt19937_64& engine) {
  return (static_cast<double>(engine() >> 11) + 0.5) * 0x1p-53;
}

// Of a standard normal distribution, from its tail beyond `bound`, and the logarithm of that tail.
std::pair<double, double> beyond(double bound, std::mt19937_64& engine) {
  constexpr double far = 30;  // where the tail is an exponential one
  const double u = uniform(engine);
  if (bound > far) {
    const double log_tail = -bound * bound / 2 - std::log(bound * std::sqrt(2 * std::numbers::pi));
    return {bound - std::log(u) / bound, log_tail};
  }
  const double tail = std::erfc(bound / std::numbers::sqrt2) / 2;
  return {std::numbers::sqrt2 * boost::math::erfc_inv(2 * u * tail), std::log(tail)};
}

// The lower triangle L of a positive definite matrix L L'.
using Matrix = std::vector<std::vector<double>>;
Matrix cholesky(const Matrix& matrix) {
  Matrix lower = matrix;
  for (size_t i = 0; i < matrix.size(); ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = matrix[i][j];
      for (size_t k = 0; k < j; ++k) sum -= lower[i][k] * lower[j][k];
      lower[i][j] = i == j ? std::sqrt(std::max(sum, 1e-300)) : sum / lower[j][j];
    }
  }
  return lower;
}

// x of L x = b, and of L' x = b.
std::vector<double> forward(const Matrix& lower, std::vector<double> b) {
  for (size_t i = 0; i < b.size(); ++i) {
    for (size_t k = 0; k < i; ++k) b[i] -= lower[i][k] * b[k];
    b[i] /= lower[i][i];
  }
  return b;
}
std::vector<double> backward(const Matrix& lower, std::vector<double> b) {
  for (size_t i = b.size(); i-- > 0;) {
    for (size_t k = i + 1; k < b.size(); ++k) b[i] -= lower[k][i] * b[k];
    b[i] /= lower[i][i];
  }
  return b;
}

double ranks_of_a_host(const StepSize& size, int64_t per_host) {
  return static_cast<double>(std::min(size.ranks, size.per_host > 0 ? size.per_host : per_host));
}
double hosts_of(const StepSize& size, int64_t per_host) {
  return static_cast<double>(size.ranks) / ranks_of_a_host(size, per_host);
}

}  // namespace

// The posterior of one law: normal but for the bounds of its coefficients.
struct Growth::Fit {
  std::vector<size_t> terms;  // that the points can tell, or the prior must
  std::vector<double> mean;   // of their coefficients
  Matrix lower;               // of the inverse of their covariance
  double squares = 0;         // of relative residuals
  double log_likelihood = 0;
};

double Growth::Law::of(double count, double work) const {
  if (count <= 1) return 0;
  return constant * work + ring * 2 * (count - 1) / count + rounds * std::log2(count) +
         linear * (count - 1);
}

Growth::Growth(std::vector<StepPoint> points, std::vector<Hypothesis> hypotheses, double deviation)
    : points_(std::move(points)), hypotheses_(std::move(hypotheses)), deviation_(deviation) {
  if (points_.empty()) throw std::invalid_argument("a forecast needs a measured size");
  const auto seconds_of_work = [](const StepPoint& point) {
    return point.seconds / point.size.accumulate / point.size.batch;
  };
  least_seconds_ = std::ranges::min(transformed(points_, seconds_of_work));
  double least_squares = INFINITY;
  for (const Hypothesis& hypothesis : hypotheses_) {
    for (const Law& law : laws_for(hypothesis)) {
      least_squares = std::min(least_squares, best_fit(hypothesis, law).squares);
    }
  }
  const double freedom = std::max<double>(0, static_cast<double>(points_.size()) - 2);
  deviation_ =
      std::max(deviation, std::sqrt((weight_of_deviation * deviation * deviation + least_squares) /
                                    (weight_of_deviation + freedom)));
  std::mt19937_64 engine;  // the same numbers each time
  std::vector<double> logs;
  for (size_t i = 0; i < hypotheses_.size(); ++i) {
    for (const Law& law : laws_for(hypotheses_[i])) {
      const Fit found = posterior(hypotheses_[i], law);
      for (int n = 0; n < draws_of_a_law; ++n) {
        const double noise = beyond(-INFINITY, engine).first;
        Sample sample{
            .noise = noise, .hypothesis = i, .law = law, .coefficients = Columns(most_terms)};
        logs.push_back(found.log_likelihood + draw(found, engine, sample.coefficients));
        samples_.push_back(std::move(sample));
      }
    }
  }
  const double most = std::ranges::max(logs);
  for (size_t i = 0; i < logs.size(); ++i) samples_[i].weight = std::exp(logs[i] - most);
}

// Coefficients one after another, each given those before it and its bound, 0 (Geweke,
// Hajivassiliou and Keane); returns the logarithm of the draw's weight.
double Growth::draw(const Fit& fit, std::mt19937_64& engine, Columns& coefficients) {
  std::vector<double> off(fit.mean.size());
  double log_weight = 0;
  for (size_t k = off.size(); k-- > 0;) {
    double sum = 0;
    for (size_t j = k + 1; j < off.size(); ++j) sum += fit.lower[j][k] * off[j];
    const double bound = k == 0 ? -INFINITY : sum - fit.lower[k][k] * fit.mean[k];
    const auto [z, log_tail] = beyond(bound, engine);
    off[k] = (z - sum) / fit.lower[k][k];
    log_weight += log_tail;
    coefficients[fit.terms[k]] = fit.mean[k] + off[k];
  }
  return log_weight;
}

std::vector<Growth::Law> Growth::laws_for(const Hypothesis& hypothesis) const {
  std::set<double> hosts, ranks;
  for (const StepPoint& point : points_) {
    hosts.insert(hosts_of(point.size, hypothesis.per_host));
    ranks.insert(ranks_of_a_host(point.size, hypothesis.per_host));
  }
  constexpr size_t enough = 3;  // sizes, to tell growth without bound
  const int most_linear = std::max(hosts.size(), ranks.size()) >= enough ? steps_of_shares : 0;
  const auto share = [](int steps) { return static_cast<double>(steps) / steps_of_shares; };
  std::vector<Law> laws;
  for (int linear = 0; linear <= most_linear; ++linear) {
    for (int rounds = 0; rounds <= steps_of_shares - linear; ++rounds) {
      for (int ring = 0; ring <= steps_of_shares - linear - rounds; ++ring) {
        laws.push_back({share(steps_of_shares - linear - rounds - ring), share(ring), share(rounds),
                        share(linear)});
      }
    }
  }
  return laws;
}

Growth::Columns Growth::columns_of(const StepSize& size, const Hypothesis& hypothesis,
                                   const Law& law) const {
  const double work = size.accumulate * size.batch;
  const double slowed = hypothesis.with_work ? work : 1;
  return {work, size.accumulate, law.of(ranks_of_a_host(size, hypothesis.per_host), slowed),
          law.of(hosts_of(size, hypothesis.per_host), slowed)};
}

// The best coefficients that are not negative, whatever is usual.
Growth::Fit Growth::best_fit(const Hypothesis& hypothesis, const Law& law) const {
  constexpr double anything = 1e3;
  const Columns priors(most_terms, anything * least_seconds_);
  std::vector<size_t> left_out;
  while (true) {
    Fit found = fit(hypothesis, law, deviation_, priors, left_out);
    const auto least = std::ranges::min_element(found.mean);
    const size_t worst = found.terms[least - found.mean.begin()];
    if (*least >= 0 || worst == 0) return found;
    left_out.push_back(worst);
  }
}

// With costs that are usual, or as large as the points show beyond two standard errors.
Growth::Fit Growth::posterior(const Hypothesis& hypothesis, const Law& law) const {
  Columns priors(most_terms, usual_cost * least_seconds_);
  const Fit best = best_fit(hypothesis, law);
  for (size_t k = 0; k < best.terms.size(); ++k) {
    Columns unit(best.terms.size());
    unit[k] = 1;
    const double error = std::sqrt(backward(best.lower, forward(best.lower, unit))[k]);
    priors[best.terms[k]] = std::max(priors[best.terms[k]], best.mean[k] - 2 * error);
  }
  return fit(hypothesis, law, deviation_, priors);
}

Growth::Fit Growth::fit(const Hypothesis& hypothesis, const Law& law, double deviation,
                        const Columns& priors, const std::vector<size_t>& left_out) const {
  std::vector<Columns> rows;
  for (const StepPoint& point : points_) {
    rows.push_back(columns_of(point.size, hypothesis, law));
  }
  // A column that is the computation's times a factor cannot be told from it.
  Fit fit;
  for (size_t term = 0; term < rows.front().size(); ++term) {
    const double factor = rows.front()[term] / rows.front()[0];
    const bool is_alike = std::ranges::all_of(rows, [&](const Columns& row) {
      return std::abs(row[term] - factor * row[0]) < 1e-9 * std::abs(row[0]);
    });
    const bool is_wanted = std::ranges::count(left_out, term) == 0;
    if (is_wanted && (term == 0 || !is_alike || factor == 0)) fit.terms.push_back(term);
  }
  const size_t count = fit.terms.size();
  const auto prior = [&](size_t a) { return 1 / (priors[fit.terms[a]] * priors[fit.terms[a]]); };
  Matrix precision(count, std::vector<double>(count));
  std::vector<double> right(count);
  const auto seconds_of = [&](size_t i) {
    return points_[i].seconds -
           (hypothesis.known_seconds.empty() ? 0 : hypothesis.known_seconds[i]);
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    const double weight = 1 / std::pow(deviation * points_[i].seconds, 2);
    for (size_t a = 0; a < count; ++a) {
      right[a] += weight * rows[i][fit.terms[a]] * seconds_of(i);
      for (size_t b = 0; b < count; ++b) {
        precision[a][b] += weight * rows[i][fit.terms[a]] * rows[i][fit.terms[b]];
      }
    }
  }
  for (size_t a = 1; a < count; ++a) precision[a][a] += prior(a);
  fit.lower = cholesky(precision);
  fit.mean = backward(fit.lower, forward(fit.lower, right));
  double penalty = 0, log_determinant = 0;
  for (size_t a = 0; a < count; ++a) {
    log_determinant += 2 * std::log(fit.lower[a][a]) - (a > 0 ? std::log(prior(a)) : 0);
    if (a > 0) penalty += prior(a) * fit.mean[a] * fit.mean[a];
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    double residual = seconds_of(i);
    for (size_t a = 0; a < count; ++a) residual -= fit.mean[a] * rows[i][fit.terms[a]];
    fit.squares += std::pow(residual / points_[i].seconds, 2);
  }
  fit.log_likelihood = unlikely_growth * std::log(1 - law.rounds - law.linear + 1e-9) -
                       (fit.squares / (deviation * deviation) + penalty + log_determinant) / 2;
  return fit;
}

double Growth::deviation_at(const StepSize& size) const {
  double most_ranks = 1, least_batch = INFINITY;
  for (const StepPoint& point : points_) {
    most_ranks = std::max(most_ranks, static_cast<double>(point.size.ranks));
    least_batch = std::min(least_batch, point.size.batch);
  }
  const double doublings = std::max(0.0, std::log2(static_cast<double>(size.ranks) / most_ranks)) +
                           std::max(0.0, std::log2(least_batch / size.batch));
  return deviation_ * std::sqrt(1 + doublings * doublings);
}

std::vector<Possibility> Growth::at(const StepSize& size) const {
  const double deviation = deviation_at(size);
  return transformed(samples_, [&](const Sample& sample) {
    const Columns columns = columns_of(size, hypotheses_[sample.hypothesis], sample.law);
    const std::vector<double>& c = sample.coefficients;
    return Possibility{sample.weight,     sample.hypothesis, std::exp(deviation * sample.noise),
                       c[0] * columns[0], c[1] * columns[1], c[2] * columns[2],
                       c[3] * columns[3]};
  });
}

std::vector<double> weighted_quantiles(std::vector<std::pair<double, double>> values_and_weights,
                                       const std::vector<double>& shares) {
  if (values_and_weights.empty()) throw std::invalid_argument("no values have no quantile");
  std::ranges::sort(values_and_weights);
  double sum = 0;
  for (const auto& [value, weight] : values_and_weights) sum += weight;
  std::vector<double> found;
  double below = 0;
  for (const auto& [value, weight] : values_and_weights) {
    below += weight;
    while (found.size() < shares.size() && below >= shares[found.size()] * sum) {
      found.push_back(value);
    }
  }
  found.resize(shares.size(), values_and_weights.back().first);
  return found;
}

}  // namespace nearmetal
