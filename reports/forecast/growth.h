// How the time of a step grows with the number of ranks, where the law of growth is not known:
// possibilities, of which there are more the better they fit the sizes that were measured.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace nearmetal {

struct JobSize {
  int64_t ranks = 1;
  int64_t per_host = 0;    // ranks; 0: not told
  double batch = 0;        // of a rank and micro-batch; 0: not told
  int64_t accumulate = 1;  // micro-batches of a step

  double batch_or_one() const { return batch > 0 ? batch : 1; }
  /// Of a rank in a step.
  double samples() const { return batch_or_one() * static_cast<double>(accumulate); }
};

struct StepPoint {
  JobSize size;
  double seconds = 0;
};

/// What is held of a machine beside the law of growth. All are equally likely at first.
struct Hypothesis {
  int64_t per_host = 1;  // ranks, of sizes that do not tell
  bool slows = false;    // what several ranks cost is slower work; else it is there once a step
  bool has_fixed_cost = false;          // each micro-batch, which sizes of one batch do not tell
  std::vector<double> known_seconds{};  // of each point, beside what is fitted; empty: none
};

/// Parts of a step: computation, the fixed cost of a micro-batch, cost of several ranks of a host
/// and of several hosts.
using StepParts = std::array<double, 4>;

template <size_t count>
double total_seconds(const std::array<double, count>& parts) {
  return std::accumulate(parts.begin(), parts.end(), 0.0);
}

struct Possibility {
  bool slows = false;  // as its hypothesis has it
  double noise = 1;    // of a run, a factor of its time
  StepParts seconds{};
};

/// Step time = samples x a + accumulate x b + known + c x g(ranks of a host) + d x g(hosts), where
/// g(n) = (n^p - 1) / (2^p - 1): what is there once ranks exchange (p far below 0), what a ring
/// carries (-1), rounds of a tree (0), n - 1 (1). b, c and d are not negative. docs/forecast.md
/// says what is held of them before there are points, and how far points and forecasts are off.
/// Always draws the same possibilities from the posterior.
class Growth {
 public:
  /// Of points by ranks. Throws std::invalid_argument without any.
  Growth(std::vector<StepPoint> points, std::vector<Hypothesis> hypotheses, double deviation,
         double usual_cost);

  /// Without what is known, which the caller adds by hypothesis; equally likely, in the order of p.
  std::vector<Possibility> at(const JobSize& size) const;
  double deviation() const;  // the mean one

 private:
  // Seconds of a sample, of a micro-batch, of ranks of a host, and of hosts; p; the deviation; and
  // the hypothesis, which is the whole number below.
  using Draw = std::array<double, 7>;
  const Hypothesis& hypothesis_of(const Draw& draw) const {
    return hypotheses_[static_cast<size_t>(draw.back())];
  }
  StepParts parts_of(const JobSize& size, const Draw& draw) const;
  double log_posterior(const Draw& draw) const;

  std::vector<StepPoint> points_;
  std::vector<Hypothesis> hypotheses_;
  double least_deviation_ = 0, usual_seconds_ = 0;
  std::vector<Draw> draws_;  // by p
};

}  // namespace nearmetal
