#include "reports/statistics/inference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <vector>

#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

using Samples = std::vector<double>;
using testing::DoubleNear;
using testing::ElementsAre;

// Golden values: scipy 1.17 (ttest_ind with equal_var=False, ttest_rel, t.interval, gmean on the
// logarithms; mannwhitneyu) and statsmodels 0.15 (ttost_ind, ttost_paired, multipletests).
const Samples old_runs = {1412.3, 1405.8, 1420.1, 1409.9, 1416.6};
const Samples new_runs = {1389.2, 1401.7, 1377.4, 1394.0, 1385.5, 1399.1, 1381.8};
const double margin = -std::log(0.98);

LogEstimate welch() { return difference(*log_mean(old_runs), *log_mean(new_runs)); }

TEST(Inference, GeometricMeanWithItsInterval) {
  const auto estimate = log_mean(old_runs);
  ASSERT_TRUE(estimate);
  EXPECT_NEAR(std::exp(estimate->value), 1412.9311332553586, 1e-9);
  EXPECT_NEAR(estimate->standard_error, 0.0017713220234150029, 1e-15);
  EXPECT_NEAR(interval(*estimate, 0.95).lower, 1405.9994274761802, 1e-8);
  EXPECT_NEAR(interval(*estimate, 0.95).upper, 1419.8970129780466, 1e-8);
}

TEST(Inference, OneRunOrEqualRunsHaveNoInterval) {
  EXPECT_FALSE(log_mean(Samples{}));
  EXPECT_FALSE(log_mean(Samples{1400}));
  EXPECT_FALSE(log_mean(Samples{1400, 1400, 1400}));
  EXPECT_THROW(log_mean(Samples{1400, 0}), std::invalid_argument);
  EXPECT_THROW(log_mean(Samples{1400, std::nan("")}), std::invalid_argument);
}

TEST(Inference, WelchOnLogarithms) {
  const LogEstimate found = welch();
  EXPECT_NEAR(std::expm1(found.value), -0.01637846063484337, 1e-14);
  EXPECT_NEAR(found.value / found.standard_error, -5.47945314691634, 1e-9);
  EXPECT_NEAR(found.degrees_of_freedom, 9.877446255186097, 1e-9);
  EXPECT_NEAR(p_of_no_difference(found), 0.0002814596389850293, 1e-12);
  EXPECT_NEAR(interval(found, 0.9).lower - 1, -0.021743508721825386, 1e-12);
  EXPECT_NEAR(interval(found, 0.9).upper - 1, -0.010983989036510032, 1e-12);
}

TEST(Inference, TwoOneSidedTests) {
  const LogEstimate found = welch();
  EXPECT_NEAR(p_of_at_most(found, -margin), 0.12468922761671167, 1e-11);
  EXPECT_NEAR(p_of_at_least(found, margin), 1.4251738530069947e-07, 1e-16);
  EXPECT_NEAR(p_of_at_least(found, -margin), 0.8753107723832884, 1e-11);
}

TEST(Inference, PairedTest) {
  Samples ratios;
  for (size_t i = 0; i < 5; ++i) ratios.push_back(new_runs[i] / old_runs[i]);
  const auto found = log_mean(ratios);
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->value / found->standard_error, -3.5592058777906233, 1e-9);
  EXPECT_DOUBLE_EQ(found->degrees_of_freedom, 4);
  EXPECT_NEAR(p_of_no_difference(*found), 0.023602831929991977, 1e-11);
  EXPECT_NEAR(interval(*found, 0.9).lower - 1, -0.02634375703642186, 1e-11);
  EXPECT_NEAR(interval(*found, 0.9).upper - 1, -0.006673435481107732, 1e-11);
  EXPECT_NEAR(p_of_at_most(*found, -margin), 0.24816859152672585, 1e-11);
  EXPECT_NEAR(p_of_at_least(*found, margin), 0.0007058818140262826, 1e-12);
}

// Scaling efficiency of a VM over that of bare metal: four arms, each with its own spread.
TEST(Inference, RatioOfRatios) {
  const Samples bare_2 = {2790, 2811, 2803};
  const Samples vm_2 = {2701, 2688, 2719, 2695};
  const Samples vm_1 = {1389.2, 1401.7, 1377.4};
  const LogEstimate found =
      combined(std::vector<std::pair<double, LogEstimate>>{{-1, *log_mean(bare_2)},
                                                           {1, *log_mean(old_runs)},
                                                           {1, *log_mean(vm_2)},
                                                           {-1, *log_mean(vm_1)}});
  EXPECT_NEAR(std::exp(found.value), 0.9804198450007402, 1e-13);
  EXPECT_NEAR(found.degrees_of_freedom, 4.430979269230908, 1e-9);
  EXPECT_NEAR(interval(found, 0.95).lower, 0.9641005643024583, 1e-11);
  EXPECT_NEAR(interval(found, 0.95).upper, 0.9970153613246097, 1e-11);
  EXPECT_THROW(combined({}), std::invalid_argument);
}

TEST(Inference, NeitherScaleNorOrderNorSideMatter) {
  const LogEstimate found = welch();
  Samples base = {old_runs.rbegin(), old_runs.rend()};
  Samples next = {new_runs.rbegin(), new_runs.rend()};
  for (double& value : base) value *= 1e-3;
  for (double& value : next) value *= 1e-3;
  const LogEstimate scaled = difference(*log_mean(base), *log_mean(next));
  EXPECT_NEAR(scaled.value, found.value, 1e-13);
  EXPECT_NEAR(scaled.standard_error, found.standard_error, 1e-13);
  const LogEstimate swapped = difference(*log_mean(new_runs), *log_mean(old_runs));
  EXPECT_DOUBLE_EQ(swapped.value, -found.value);
  EXPECT_NEAR(p_of_at_most(swapped, -margin), p_of_at_least(found, margin), 1e-15);
  EXPECT_DOUBLE_EQ(mann_whitney_p(new_runs, old_runs), mann_whitney_p(old_runs, new_runs));
}

TEST(Inference, Holm) {
  EXPECT_THAT(holm_adjusted(Samples{.01, .04, .03, .005, .2}),
              ElementsAre(DoubleNear(.04, 1e-15), DoubleNear(.09, 1e-15), DoubleNear(.09, 1e-15),
                          DoubleNear(.025, 1e-15), DoubleNear(.2, 1e-15)));
  EXPECT_THAT(holm_adjusted(Samples{0.9, 0.8}), ElementsAre(1, 1));
  EXPECT_TRUE(holm_adjusted({}).empty());
}

// scipy.stats.wilcoxon; with ties counted over all 128 signs.
TEST(Wilcoxon, OfPairs) {
  EXPECT_DOUBLE_EQ(wilcoxon_p(Samples{1, 2, 3, 4, 5, 6}), 0.03125) << "the least of 6 pairs";
  EXPECT_DOUBLE_EQ(wilcoxon_p(Samples{.3, -.1, .5, .7, .2, -.4, .9, 1.1}), 0.078125);
  EXPECT_DOUBLE_EQ(wilcoxon_p(Samples{1, 1, -2, 3, 3, -3, 4}), 0.375);
  EXPECT_DOUBLE_EQ(wilcoxon_p(Samples{1, 1, -2, 3, 0, 3, -3, 4}), 0.375) << "0 has no sign";
  EXPECT_DOUBLE_EQ(wilcoxon_p(Samples{0, 0}), 1);
  Samples many;
  for (int i = 0; i < 80; ++i) many.push_back((i * 37 % 101 - 43) / 10.0);
  EXPECT_NEAR(wilcoxon_p(many), 0.0466888931934817, 1e-12) << "normal approximation";
  EXPECT_THROW(wilcoxon_p({}), std::invalid_argument);
}

TEST(MannWhitney, ExactWithoutTies) {
  EXPECT_NEAR(mann_whitney_p(new_runs, old_runs), 0.0025252525252525255, 1e-15);
  EXPECT_NEAR(mann_whitney_p(Samples{1, 2, 3}, Samples{4, 5, 6}), 0.1, 1e-15);
  Samples sines;
  Samples cosines;
  for (int i = 0; i < 20; ++i) {
    sines.push_back(std::sin(i) * 3 + 100);
    cosines.push_back(std::cos(i * 1.3) * 3 + 101);
  }
  EXPECT_NEAR(mann_whitney_p(sines, cosines), 0.1080770739135105, 1e-13);
}

// scipy: method=PermutationMethod(n_resamples=inf), all 1716 and 35 ways.
TEST(MannWhitney, ExactWithTies) {
  EXPECT_NEAR(mann_whitney_p(Samples{1, 2, 2, 3, 5, 5}, Samples{2, 4, 5, 5, 6, 7, 8}),
              0.0675990675990676, 1e-14);
  EXPECT_NEAR(mann_whitney_p(Samples{1, 1, 2}, Samples{1, 2, 2, 3}), 0.5714285714285714, 1e-14);
  EXPECT_DOUBLE_EQ(mann_whitney_p(Samples{5, 5}, Samples{5, 5}), 1);
  EXPECT_THROW(mann_whitney_p(Samples{}, Samples{1}), std::invalid_argument);
}

TEST(MannWhitney, ApproximationForManyValues) {
  const Samples first = {99,  99,  100, 100, 101, 100, 99, 99,  101, 102, 100, 99,  99, 102,
                         100, 98,  100, 99,  99,  100, 99, 101, 100, 99,  100, 101, 98, 100,
                         99,  100, 99,  100, 100, 100, 99, 100, 99,  99,  100, 99};
  const Samples second = {102, 101, 99,  101, 100, 101, 101, 99,  100, 100, 102, 100,
                          101, 100, 100, 100, 102, 101, 103, 101, 102, 102, 100, 101,
                          102, 100, 101, 101, 101, 100, 101, 101, 101, 100, 102};
  EXPECT_NEAR(mann_whitney_p(first, second), 3.0488456835635295e-06, 1e-16);
  EXPECT_DOUBLE_EQ(mann_whitney_p(Samples(40, 1.0), Samples(40, 1.0)), 1);
}

TEST(Inference, SpreadBetweenAndWithinRuns) {
  const Samples within = {0.001, 0.001, 0.001, 0.001, 0.001};
  const auto spread = run_spread(old_runs, within);
  ASSERT_TRUE(spread);
  const double deviation = 0.0017713220234150029 * std::sqrt(5);
  EXPECT_NEAR(spread->deviation, deviation, 1e-14);
  EXPECT_NEAR(spread->within, 0.001, 1e-15);
  EXPECT_NEAR(spread->between, std::sqrt(deviation * deviation - 1e-6), 1e-14);
  EXPECT_DOUBLE_EQ(run_spread(old_runs, Samples{0.1})->between, 0) << "noise explains it all";
  EXPECT_DOUBLE_EQ(run_spread(old_runs, {})->within, 0);
  EXPECT_FALSE(run_spread(Samples{1}, {}));
}

// scipy.stats.nct; the number of runs by trying each.
TEST(Power, AsOfTheNonCentralT) {
  const DecisionRule rule;
  const auto groups = [](double deviation, int64_t runs) {
    return std::vector<RunGroup>(2, {deviation, runs});
  };
  EXPECT_NEAR(chance_of_deciding(groups(.01, 5), 0, rule), 0.7937359631690637, 1e-6);
  EXPECT_NEAR(chance_of_deciding(groups(.0025, 2), 0, rule), 0.9963611368081717, 1e-6);
  EXPECT_NEAR(chance_of_deciding(groups(.005, 3), 0, rule), 0.9797550348596895, 1e-6);
  EXPECT_NEAR(chance_of_deciding(groups(.01, 10), 0, rule), 0.9929535877885305, 1e-6);
  EXPECT_NEAR(chance_of_deciding(groups(.005, 8), std::log(.97), rule), 0.9877434653011329, 1e-6);
  EXPECT_NEAR(chance_of_deciding(groups(.01, 5), std::log(.97), rule), 0.43594359136168825, 1e-6);
  const std::vector<RunGroup> unequal = {{.004, 20}, {.006, 5}};
  EXPECT_NEAR(chance_of_deciding(unequal, std::log(.97), rule), 0.9242869319943232, 1e-6);
  EXPECT_NEAR(detectable_drop({0, .005 * std::sqrt(2 / 8.), 14}, rule, .8), 0.026388424036918864,
              1e-5);
  EXPECT_NEAR(detectable_drop({0, .01 * std::sqrt(2 / 3.), 4}, rule, .8), 0.04402371241732998,
              1e-5);
}

TEST(Power, RunsThatWouldDecide) {
  const DecisionRule rule;
  const std::vector<RunGroup> noisy(2, {.01, 2});
  const std::vector<RunGroup> noisier(2, {.02, 2});
  const std::vector<RunGroup> quiet(2, {.005, 2});
  EXPECT_EQ(more_runs_to_decide(noisy, 0, rule, .8), 6 - 2);
  EXPECT_EQ(more_runs_to_decide(noisy, -.01, rule, .8), 13 - 2);
  EXPECT_EQ(more_runs_to_decide(noisier, 0, rule, .8), 18 - 2);
  EXPECT_EQ(more_runs_to_decide(quiet, std::log(.97), rule, .95), 6 - 2);
  EXPECT_EQ(more_runs_to_decide(noisy, std::log(.975), rule, .8), 48 - 2);
  EXPECT_EQ(more_runs_to_decide(noisy, -std::log(.975), rule, .8), 48 - 2) << "faster, as well";
  EXPECT_EQ(more_runs_to_decide(std::vector<RunGroup>(2, {1e-5, 9}), 0, rule, .8), 0);
  EXPECT_FALSE(more_runs_to_decide(noisy, std::log(.98), rule, .8)) << "on the margin itself";
}

TEST(Power, OnlyGroupsThatCanGrowDo) {
  const DecisionRule rule;
  const auto with_base = [&](bool grows) {
    const std::vector<RunGroup> groups = {{.01, 4, grows}, {.01, 4, true}};
    return more_runs_to_decide(groups, -.008, rule, .8);
  };
  ASSERT_TRUE(with_base(true));
  EXPECT_TRUE(!with_base(false) || *with_base(false) > *with_base(true));
  EXPECT_THROW(more_runs_to_decide(std::vector<RunGroup>{{.01, 1}}, 0, rule, .8),
               std::invalid_argument);
}

}  // namespace
}  // namespace nearmetal
