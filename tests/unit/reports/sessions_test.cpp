#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "reports/statistics/inference.h"

namespace nearmetal {
namespace {

Sessions named(const char* prefix, const std::vector<std::vector<double>>& runs) {
  Sessions sessions;
  for (size_t i = 0; i < runs.size(); ++i) sessions[prefix + std::to_string(i)] = runs[i];
  return sessions;
}
Sessions base_of(const std::vector<std::vector<double>>& runs) { return named("base ", runs); }
Sessions next_of(const std::vector<std::vector<double>>& runs) { return named("new ", runs); }

// One run a session, and one new session: means of sessions are the runs, and the error is that of
// the base's spread.
TEST(Sessions, OfOneRunEachAreRuns) {
  const auto found =
      session_difference(base_of({{0.01}, {0.02}, {0.03}, {0.06}}), next_of({{0.07}}));
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->estimate.value, 0.04, 1e-12);
  EXPECT_NEAR(found->estimate.standard_error, std::sqrt(0.0014 / 3 * (1 / 4. + 1)), 1e-12);
  EXPECT_NEAR(found->estimate.degrees_of_freedom, 3, 1e-9);
}

// Runs of a session that agree leave nothing but what differs between sessions.
TEST(Sessions, OfEqualRunsDifferByTheirMeans) {
  const auto found = session_difference(base_of({{1, 1, 1}, {2, 2, 2}, {3, 3, 3}, {4, 4, 4}}),
                                        next_of({{5, 5, 5}}));
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->estimate.value, 2.5, 1e-12);
  EXPECT_NEAR(found->estimate.standard_error, std::sqrt(5. / 3 * (1 / 4. + 1)), 1e-12);
  EXPECT_NEAR(found->estimate.degrees_of_freedom, 3, 1e-9);
}

// By scipy: stats.ttest_ind of the means, of equal variance; the variance within sessions must not
// count twice.
TEST(Sessions, OfEqualNumberArePooled) {
  const auto found = session_difference(base_of({{-1, 1}, {9, 11}, {-1, 1}, {9, 11}}),
                                        next_of({{2, 4}, {12, 14}, {2, 4}, {13, 15}}));
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->estimate.value, 3.25, 1e-12);
  EXPECT_NEAR(found->estimate.standard_error, 4.190763654, 1e-8);
  EXPECT_NEAR(found->estimate.degrees_of_freedom, 6, 1e-12);
  const auto two = session_difference(base_of({{1, 2}, {3}}), next_of({{5, 6}, {6, 8}}));
  ASSERT_TRUE(two);
  EXPECT_NEAR(two->estimate.degrees_of_freedom, 2, 1e-12);
}

// By scipy: the same with equal_var=False.
TEST(Sessions, OfUnequalNumberHaveEachSidesSpread) {
  const auto found =
      session_difference(base_of({{1}, {1.1}, {1.2}, {1.1}, {1.1}}), next_of({{3}, {5}, {1}}));
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->estimate.value, 1.9, 1e-12);
  EXPECT_NEAR(found->estimate.standard_error, 1.155133470, 1e-8);
  EXPECT_NEAR(found->estimate.degrees_of_freedom, 2.003000562, 1e-8);
}

TEST(Sessions, OfBothSidesAreBlocksAlsoWhereSomeAreLost) {
  const Sessions base = named("night ", {{0, 2}, {11}, {21}, {31}});
  Sessions next = named("night ", {{2}, {13}, {22}, {33}});
  const auto all = session_difference(base, next);
  ASSERT_TRUE(all);
  EXPECT_TRUE(all->are_blocks);
  EXPECT_NEAR(all->estimate.value, 1.5, 1e-12);
  EXPECT_NEAR(all->estimate.standard_error, std::sqrt(1 / 3. / 4), 1e-12);
  EXPECT_NEAR(all->estimate.degrees_of_freedom, 3, 1e-12);
  next.erase("night 2");
  next["another night"] = {100};
  const auto left = session_difference(base, next);
  ASSERT_TRUE(left && left->are_blocks) << "three of four are enough";
  EXPECT_NEAR(left->estimate.value, 5 / 3., 1e-12);
  next.erase("night 3");
  EXPECT_FALSE(session_difference(base, next)->are_blocks) << "two of four are not";
}

// Computed by hand. The variance within sessions is 2, and 7/8 of it is left in their means.
TEST(Sessions, OfUnequalNumbersOfRunsErrByTheMeanOfTheirParts) {
  const auto found = session_difference(base_of({{0}, {10}, {0}, {9, 11}}), next_of({{3}}));
  ASSERT_TRUE(found);
  const double between = 100. / 3 - 2 * 7. / 8;
  EXPECT_NEAR(std::pow(found->estimate.standard_error, 2),
              between * (1 / 4. + 1) + 2 * 7. / 8 / 4 + 2, 1e-12);
}

TEST(Sessions, OfOneSideTellHowTheyDiffer) {
  const Sessions next = next_of({{5, 6}}), one = base_of({{1, 2}});
  EXPECT_FALSE(session_difference(one, next));
  EXPECT_TRUE(session_difference(base_of({{1, 2}, {2, 3}}), next)) << "one degree of freedom";
  EXPECT_TRUE(session_difference(one, next, base_of({{1, 2}, {2, 3}}))) << "others tell";
  EXPECT_FALSE(session_difference(base_of({{1}, {1}, {1}, {1}}), next_of({{1}})))
      << "nothing varies";
}

TEST(Sessions, MoreOfThemArePlannedAsRunsAre) {
  const DecisionRule rule;
  const SessionDifference found{.estimate = {0, .01 * std::sqrt(2 / 4.), 6}, .base = 4, .next = 4};
  const std::vector<RunGroup> runs(2, {.01, 4});
  EXPECT_EQ(more_sessions_to_decide(found, 0, true, rule, .8),
            more_runs_to_decide(runs, 0, rule, .8));
  const SessionDifference blocks{
      .estimate = {0, .01 / 2, 3}, .are_blocks = true, .base = 4, .next = 4};
  EXPECT_EQ(more_sessions_to_decide(blocks, 0, true, rule, .8),
            more_runs_to_decide(std::vector<RunGroup>{{.01, 4}}, 0, rule, .8));
  EXPECT_FALSE(more_sessions_to_decide(found, std::log(.98), true, rule, .8)) << "on the margin";
}

TEST(SumOverSessions, OfTermsInTheSameSessionsHasTheirSpreadWithinThem) {
  const SessionTerm terms[] = {{1, named("", {{1}, {2}, {3}})},
                               {-.5, named("", {{1}, {2}, {3.2}})},
                               {-.5, named("", {{1}, {2.2}, {3}})}};
  const auto found = sum_over_sessions(terms);
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->value, -.2 / 3, 1e-12);
  EXPECT_NEAR(found->degrees_of_freedom, 2, 1e-12);
  EXPECT_NEAR(found->standard_error, std::sqrt(.01 / 3 / 3), 1e-12);
}

TEST(SumOverSessions, OfOthersAddsTheirVariances) {
  const SessionTerm terms[] = {
      {1, named("a", {{1}, {2}, {3}})}, {2, named("b", {{1}, {2}})}, {1, named("c", {{1}, {2}})}};
  const auto found = sum_over_sessions(terms);
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->value, 2 + 3 + 1.5, 1e-12);
  EXPECT_NEAR(found->standard_error, std::sqrt(1 / 3. + 4 * .25 + .25), 1e-12);
  const SessionTerm lone[] = {
      {1, named("a", {{1}, {2}})}, {2, named("b", {{1}})}, {1, named("c", {{1}, {2}})}};
  EXPECT_FALSE(sum_over_sessions(lone)) << "how the second spreads is not known";
}

// A prediction interval: of machines with means 0, 1 and 2, the next lies at 1 with a variance of
// 1 + 1/3.
TEST(Machines, OneMoreVariesAsTheyDoAndAsTheirMean) {
  const std::vector<Sessions> machines = {base_of({{0}, {0}}), base_of({{1}, {1}}),
                                          base_of({{2}, {2}})};
  const auto found = difference_from_machines(machines, next_of({{3}, {3}}));
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->value, 2, 1e-12);
  EXPECT_NEAR(found->standard_error, std::sqrt(4 / 3.), 1e-12);
  EXPECT_EQ(found->degrees_of_freedom, 2);
}

TEST(Machines, OneOfFewerSessionsVariesByThoseWithinMachines) {
  const std::vector<Sessions> machines = {base_of({{0}, {2}}), base_of({{1}, {3}}),
                                          base_of({{2}, {4}})};  // variance within: 2
  const auto two = difference_from_machines(machines, next_of({{3}, {3}}));
  const auto one = difference_from_machines(machines, next_of({{3}}));
  ASSERT_TRUE(two && one);
  EXPECT_NEAR(two->standard_error, std::sqrt(4 / 3.), 1e-12);
  EXPECT_NEAR(one->standard_error, std::sqrt(4 / 3. + 2 * (1 - .5)), 1e-12);
}

TEST(Machines, FewOrEqualOnesDoNotTellHowTheyDiffer) {
  const Sessions next = next_of({{3}});
  EXPECT_FALSE(
      difference_from_machines(std::vector<Sessions>{base_of({{0}}), base_of({{1}})}, next));
  EXPECT_FALSE(difference_from_machines(std::vector<Sessions>(3, base_of({{1}})), next));
}

}  // namespace
}  // namespace nearmetal
