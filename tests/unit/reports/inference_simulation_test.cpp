// Error rates over thousands of made-up sessions, at fixed seeds: what intervals and tests promise
// holds for runs as they are, with correlated steps and differences between launches.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "reports/statistics/inference.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

constexpr int sessions = 4000;

// Within 4 standard errors of a binomial share: one false alarm in 16000 had the seeds been free.
void expect_share(int count, double expected, const char* what) {
  const double share = static_cast<double>(count) / sessions;
  EXPECT_NEAR(share, expected, 4 * std::sqrt(expected * (1 - expected) / sessions)) << what;
}

struct Model {
  double between = 0.005;      // standard deviation of ln(run)
  double step_deviation = 0;   // of a step, relative; 0: runs are drawn without steps
  double autocorrelation = 0;  // of neighbouring steps, AR(1)
  int steps = 60;
};

class Runs {
 public:
  explicit Runs(const Model& model) : model_(model) {}

  std::vector<double> take(int count, double log_level) {
    std::vector<double> values;
    for (int run = 0; run < count; ++run) {
      const double level = std::exp(log_level + model_.between * noise_(engine_));
      values.push_back(level / mean_step());
    }
    return values;
  }

 private:
  double mean_step() {
    if (model_.step_deviation == 0) return 1;
    const double fresh = std::sqrt(1 - model_.autocorrelation * model_.autocorrelation);
    double state = noise_(engine_);
    double sum = 0;
    for (int step = 0; step < model_.steps; ++step) {
      state = model_.autocorrelation * state + fresh * noise_(engine_);
      sum += 1 + model_.step_deviation * state;
    }
    return sum / model_.steps;
  }

  Model model_;
  std::mt19937_64 engine_{20260131};
  std::normal_distribution<double> noise_;
};

const std::vector<Model> models = {
    {},
    {.between = 0.01},
    {.between = 0.002, .step_deviation = 0.01},
    {.between = 0.002, .step_deviation = 0.01, .autocorrelation = 0.5},
    {.between = 0.002, .step_deviation = 0.01, .autocorrelation = 0.9},
};

TEST(Simulation, IntervalsCoverTheTruth) {
  for (const Model& model : models) {
    for (const int runs : {3, 5, 10}) {
      Runs source(model);
      int covered = 0;
      for (int session = 0; session < sessions; ++session) {
        const auto values = source.take(runs, std::log(1000));
        const Interval found = interval(*log_mean(values), 0.95);
        // The mean of 1 / mean step is a little more than 1: by its variance, of no weight here.
        covered += found.lower <= 1000 && 1000 <= found.upper;
      }
      expect_share(covered, 0.95, "coverage");
    }
  }
}

TEST(Simulation, EqualSetsDifferAsOftenAsAlphaSays) {
  for (const Model& model : models) {
    for (const int runs : {5, 10}) {
      Runs source(model);
      int welch = 0;
      int paired = 0;
      for (int session = 0; session < sessions; ++session) {
        const auto base = source.take(runs, 0);
        const auto next = source.take(runs, 0);
        welch += p_of_no_difference(difference(*log_mean(base), *log_mean(next))) < 0.05;
        std::vector<double> ratios;
        for (int i = 0; i < runs; ++i) ratios.push_back(next[i] / base[i]);
        paired += p_of_no_difference(*log_mean(ratios)) < 0.05;
      }
      expect_share(welch, 0.05, "Welch");
      expect_share(paired, 0.05, "paired");
    }
  }
}

// With so few values p takes few levels: never more often than alpha, and not absurdly rarely.
TEST(Simulation, RankTestKeepsItsLevel) {
  Runs source({});
  int alarms = 0;
  for (int session = 0; session < sessions; ++session) {
    alarms += mann_whitney_p(source.take(6, 0), source.take(7, 0)) <= 0.05;
  }
  EXPECT_LE(alarms, sessions * 0.05 + 4 * std::sqrt(sessions * 0.05 * 0.95));
  EXPECT_GE(alarms, sessions * 0.02);
}

// Pooling steps of runs as if they were independent: why a run is the unit.
TEST(Simulation, StepsPooledWouldRaiseFalseAlarms) {
  Runs source({.between = 0.002, .step_deviation = 0.01, .autocorrelation = 0.9});
  int alarms = 0;
  for (int session = 0; session < 400; ++session) {
    const auto base = source.take(3, 0);
    const auto next = source.take(3, 0);
    const double error = 0.01 * std::sqrt(2.0 / (3 * 60));  // as of 180 independent steps a side
    alarms += std::abs(std::log(mean(next) / mean(base))) > 1.96 * error;
  }
  EXPECT_GT(alarms, 400 * 0.3);
}

TEST(Simulation, EquivalenceOnTheMarginIsClaimedNoMoreOftenThanAlpha) {
  const DecisionRule rule;
  for (const int runs : {3, 5, 8}) {
    Runs source({.between = 0.005});
    int claimed = 0;
    for (int session = 0; session < sessions; ++session) {
      const auto base = source.take(runs, 0);
      const auto next = source.take(runs, log_margin(rule));
      const Interval found = log_interval(difference(*log_mean(base), *log_mean(next)), 0.9);
      claimed += found.lower > log_margin(rule) && found.upper < -log_margin(rule);
    }
    EXPECT_LE(claimed, sessions * 0.05 + 4 * std::sqrt(sessions * 0.05 * 0.95));
    EXPECT_GE(claimed, sessions * 0.03);
  }
}

TEST(Simulation, ThePlannedNumberOfRunsDecidesAsOftenAsPromised) {
  const DecisionRule rule;
  for (const double truth : {0.0, -0.01, std::log(0.97)}) {
    const std::vector<RunGroup> pilot(2, {.deviation = 0.008, .runs = 2});
    const auto more = more_runs_to_decide(pilot, truth, rule, 0.8);
    ASSERT_TRUE(more);
    Runs source({.between = 0.008});
    int decided = 0;
    for (int session = 0; session < sessions; ++session) {
      const int runs = 2 + static_cast<int>(*more);
      const Interval found = log_interval(
          difference(*log_mean(source.take(runs, 0)), *log_mean(source.take(runs, truth))), 0.9);
      decided += truth > log_margin(rule)
                     ? found.lower > log_margin(rule) && found.upper < -log_margin(rule)
                     : found.upper < log_margin(rule);
    }
    EXPECT_GE(decided, sessions * 0.8 - 4 * std::sqrt(sessions * 0.16)) << truth;
    EXPECT_LE(decided, sessions * 0.95) << "not planned far too large, for " << truth;
  }
}

}  // namespace
}  // namespace nearmetal
