// How the time of a step grows with the number of ranks, where the law of growth is not known: a
// mean over laws, each by how well it fits the sizes that were measured.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace nearmetal {

struct StepSize {
  int64_t ranks = 1;
  int64_t per_host = 0;   // ranks; 0: as a hypothesis has it
  double batch = 1;       // of a micro-batch, as a share of the largest one
  double accumulate = 1;  // micro-batches
};

struct StepPoint {
  StepSize size;
  double seconds = 0;
};

/// What is held of a machine beside the law of growth. All are equally likely at first.
struct Hypothesis {
  int64_t per_host = 1;    // ranks, of sizes that do not tell
  bool with_work = false;  // what is there once ranks exchange slows work; else it is once a step
  std::vector<double> known_seconds{};  // of each point, beside what is fitted; empty: none
};

/// Parts of a step: computation, the fixed cost of a micro-batch, cost of several ranks of a host
/// and of several hosts.
using StepParts = std::array<double, 4>;

struct Possibility {
  double weight = 0;
  size_t hypothesis = 0;
  double noise = 1;  // of a run, a factor of its time
  StepParts seconds{};
};

/// Step time = accumulate x (batch x a + b) + known + c x g(ranks of a host) + d x g(hosts), where
/// g is a mixture of what is there once ranks exchange (1), what a ring carries (2 (n - 1) / n),
/// rounds of a tree (log2 n) and, where three sizes can show it, n - 1. Mixtures that grow without
/// bound are unlikely a priori: (1 - their share)^6. Costs b, c and d are not negative; a priori
/// each is within the usual share of a micro-batch, or what the points show if that is more, in two
/// cases of three (half a normal distribution). Points are off by a relative `deviation`, or, where
/// no law fits so well, by more, and forecasts by as much again for each doubling of ranks, or
/// halving of the batch, beyond what was measured. Always draws the same possibilities from the
/// posterior.
class Growth {
 public:
  static constexpr int draws_of_a_law = 20;  // one after another among the possibilities

  /// Throws std::invalid_argument without points.
  Growth(std::vector<StepPoint> points, std::vector<Hypothesis> hypotheses, double deviation,
         double usual_cost = 0.07);

  /// Without what is known, which the caller adds by hypothesis.
  std::vector<Possibility> at(const StepSize& size) const;
  double deviation() const { return deviation_; }

 private:
  using Law = std::array<double, 4>;  // shares of the above
  struct Fit;
  struct Sample {
    Possibility possibility;  // with coefficients in place of seconds
    Law law;
  };

  std::vector<Law> laws_for(const Hypothesis& hypothesis) const;
  Fit fit(const Hypothesis& hypothesis, const Law& law, const StepParts& priors,
          StepParts wanted = {1, 1, 1, 1}) const;
  Fit best_fit(const Hypothesis& hypothesis, const Law& law) const;
  Fit posterior(const Hypothesis& hypothesis, const Law& law, const Fit& best, double wider) const;
  void draw_from(const Fit& fit, size_t hypothesis, const Law& law);

  std::vector<StepPoint> points_;
  std::vector<Hypothesis> hypotheses_;
  double usual_cost_ = 0, deviation_ = 0, micro_batch_seconds_ = 0;
  uint64_t drawn_ = 0;  // state of the random numbers
  std::vector<Sample> samples_;
};

/// The values below which these shares of the weight are, which rise. Throws std::invalid_argument
/// for no values.
using Weighted = std::vector<std::pair<double, double>>;  // values with their weights
std::vector<double> weighted_quantiles(Weighted values, const std::vector<double>& shares);

}  // namespace nearmetal
