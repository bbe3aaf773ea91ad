#include "reports/statistics/sessions.h"

#include <gtest/gtest.h>

#include <cmath>

namespace nearmetal {
namespace {

// One run a session: means of sessions are the runs, and the error is Student's of two samples
// with one variance.
TEST(Sessions, OfOneRunEachAreTwoSamples) {
  const Sessions base = {{0.01}, {0.02}, {0.03}, {0.06}}, next = {{0.05}, {0.09}};
  const auto found = session_difference(base, next);
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->estimate.value, 0.04, 1e-12);
  const double pooled = (0.0014 + 0.0008) / 4;  // squares of both sides
  EXPECT_NEAR(found->estimate.standard_error, std::sqrt(pooled * (1 / 4. + 1 / 2.)), 1e-12);
  EXPECT_NEAR(found->estimate.degrees_of_freedom, 4, 1e-9);
}

// Runs of a session that agree leave nothing but what differs between sessions.
TEST(Sessions, OfEqualRunsDifferByTheirMeans) {
  const Sessions base = {{1, 1, 1}, {2, 2, 2}, {3, 3, 3}, {4, 4, 4}}, next = {{5, 5, 5}};
  const auto found = session_difference(base, next);
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->estimate.value, 2.5, 1e-12);
  EXPECT_NEAR(found->estimate.standard_error, std::sqrt(5. / 3 * (1 / 4. + 1)), 1e-12);
  EXPECT_NEAR(found->estimate.degrees_of_freedom, 3, 1e-9);
}

// With equally many runs in each session, the error is that of the means of the sessions, whose
// variance is 100 / 3: the variance within sessions must not count twice.
TEST(Sessions, OfAsManyRunsEachErrAsTheirMeans) {
  const Sessions base = {{-1, 1}, {9, 11}, {-1, 1}, {9, 11}},
                 next = {{2, 4}, {12, 14}, {2, 4}, {12, 14}};
  const auto found = session_difference(base, next);
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->estimate.value, 3, 1e-12);
  EXPECT_NEAR(found->estimate.standard_error, std::sqrt(100. / 3 * (1 / 4. + 1 / 4.)), 1e-12);
}

// Computed by hand. The variance within sessions is 2, and 7/8 of it is left in their means.
TEST(Sessions, OfUnequalNumbersOfRunsErrByTheMeanOfTheirParts) {
  const Sessions base = {{0}, {10}, {0}, {9, 11}}, next = {{3}};
  const auto found = session_difference(base, next);
  ASSERT_TRUE(found);
  const double between = 100. / 3 - 2 * 7. / 8;
  EXPECT_NEAR(std::pow(found->estimate.standard_error, 2),
              between * (1 / 4. + 1) + 2 * 7. / 8 / 4 + 2, 1e-12);
}

TEST(Sessions, AreFewBelowFourOfASide) {
  const Sessions base = {{1, 2}, {2, 3}, {3, 5}}, next = {{5, 6}};
  EXPECT_FALSE(session_difference(base, next));
  EXPECT_TRUE(session_difference(base, {{5, 6}, {6, 8}})) << "two and one degrees of freedom";
  EXPECT_TRUE(session_difference({{1, 2}}, next, {{1, 2}, {2, 3}, {3, 5}, {4, 4}}))
      << "others tell how sessions differ";
  EXPECT_FALSE(session_difference({{1, 2}, {2, 3}}, next, {{1, 2}, {2, 3}, {3, 5}}))
      << "three sessions in all: those of the base are among the others";
  EXPECT_FALSE(session_difference({{1}, {1}, {1}, {1}}, {{1}})) << "nothing varies";
}

TEST(Sessions, MoreNewRunsNarrowTheirPartAlone) {
  const Sessions base = {{0, .01}, {.1, .11}, {.2, .21}, {.3, .31}};
  const auto found = session_difference(base, {{0, .01, .02}});
  ASSERT_TRUE(found);
  ASSERT_EQ(found->groups.size(), 2U);
  EXPECT_FALSE(found->groups[0].can_grow);
  EXPECT_TRUE(found->groups[1].can_grow);
  EXPECT_EQ(found->groups[1].runs, 3);
  const double variance = std::pow(found->groups[0].deviation, 2) / found->groups[0].runs +
                          std::pow(found->groups[1].deviation, 2) / found->groups[1].runs;
  EXPECT_NEAR(std::sqrt(variance), found->estimate.standard_error, 1e-12);
}

}  // namespace
}  // namespace nearmetal
