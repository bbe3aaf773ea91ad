// How the time of a step grows with the number of ranks, where the law of growth is not known: a
// mean over laws, each by how well it fits the sizes that were measured.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace nearmetal {

/// Work of a step of one rank.
struct StepSize {
  int64_t ranks = 1;
  int64_t per_host = 0;   // ranks; 0: as a hypothesis has it
  double batch = 1;       // of a micro-batch, as a share of the largest one
  double accumulate = 1;  // micro-batches
};

struct StepPoint {
  StepSize size;
  double seconds = 0;  // of a step
};

/// What is held of a machine beside the law of growth. All are equally likely at first.
struct Hypothesis {
  int64_t per_host = 1;    // ranks, of sizes that do not tell
  bool with_work = false;  // what is there once ranks exchange slows work, else it is once a step
  std::vector<double> known_seconds{};  // of each point, beyond computation: simulated; empty: none
};

/// One possibility: a likelihood and what a step takes by it.
struct Possibility {
  double weight = 0;
  size_t hypothesis = 0;
  double noise = 1;  // of a run, a factor of its time
  // Computation; what each micro-batch costs whatever its batch; what ranks of a host cost one
  // another beyond what is known, and what hosts do.
  double compute = 0, fixed = 0, inside = 0, between = 0;

  double seconds() const { return compute + fixed + inside + between; }
};

/// Step time = accumulate x (batch x a + b) + known + c x g(ranks of a host) + d x g(hosts), where
/// g is a mixture of what is there once ranks exchange (1), what a ring carries (2 (n - 1) / n),
/// rounds of a tree (log2 n) and, where three or more sizes can show it, n - 1. Mixtures that grow
/// without bound are unlikely a priori: (1 - their share)^6. The costs b, c and d are not negative;
/// a priori each is within 7 % of a micro-batch, or what the points show if that is more, in two
/// cases of three (half of a normal distribution). What a point is off has a relative deviation of
/// `deviation`, or, where no law fits so well, more, and as much again for each doubling of the
/// ranks, or halving of the batch, beyond what was measured. Possibilities are drawn from the
/// posterior, always the same ones.
class Growth {
 public:
  /// Throws std::invalid_argument without points.
  Growth(std::vector<StepPoint> points, std::vector<Hypothesis> hypotheses, double deviation);

  /// Without what is known, which the caller adds by hypothesis.
  std::vector<Possibility> at(const StepSize& size) const;

  /// Relative, of a run from a law.
  double deviation() const { return deviation_; }

 private:
  struct Law {
    double constant = 1, ring = 0, rounds = 0, linear = 0;
    double of(double count, double work) const;
  };
  struct Fit;
  struct Sample {
    double weight = 0, noise = 0;  // in deviations
    size_t hypothesis = 0;
    Law law;
    std::vector<double> coefficients;
  };
  using Columns = std::vector<double>;  // compute, fixed, inside, between
  static constexpr size_t most_terms = 4;

  std::vector<Law> laws_for(const Hypothesis& hypothesis) const;
  Columns columns_of(const StepSize& size, const Hypothesis& hypothesis, const Law& law) const;
  Fit fit(const Hypothesis& hypothesis, const Law& law, double deviation, const Columns& priors,
          const std::vector<size_t>& left_out = {}) const;
  Fit best_fit(const Hypothesis& hypothesis, const Law& law) const;
  Fit posterior(const Hypothesis& hypothesis, const Law& law) const;
  static double draw(const Fit& fit, std::mt19937_64& engine, Columns& coefficients);
  double deviation_at(const StepSize& size) const;

  std::vector<StepPoint> points_;
  std::vector<Hypothesis> hypotheses_;
  double deviation_ = 0;
  double least_seconds_ = 0;
  std::vector<Sample> samples_;
};

/// The values below which these shares of the weight are, which rise. Throws std::invalid_argument
/// for no values.
std::vector<double> weighted_quantiles(std::vector<std::pair<double, double>> values_and_weights,
                                       const std::vector<double>& shares);

}  // namespace nearmetal
