#include "reports/statistics/outliers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace nearmetal {
namespace {

using Logs = std::vector<double>;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr double alpha = 0.05;

std::vector<size_t> units(const std::vector<SlowUnit>& slow) {
  std::vector<size_t> found;
  for (const SlowUnit& each : slow) found.push_back(each.unit);
  return found;
}

std::vector<size_t> suspects(const Logs& logs, const std::optional<UnitSpread>& known = {}) {
  return units(fleet_speed(logs, alpha, known)->suspects);
}

Logs speeds(Logs values) { return logarithms(values); }

// Golden values: the rule written in Python, by numpy 2 and scipy 1.17 (t.sf, kurtosis), where
// every mean and deviation is taken anew from what is left.
const Logs one_slow = speeds({1412.3, 1405.8, 1420.1, 1409.9, 1416.6, 1411.0, 1408.2, 1330.0});

TEST(FleetSpeed, NamesTheSlowUnitBesideTheOthers) {
  const auto fleet = fleet_speed(one_slow, alpha);
  ASSERT_TRUE(fleet);
  EXPECT_NEAR(fleet->centre, 7.252747105942354, 1e-14);
  EXPECT_NEAR(fleet->spread.deviation, 0.0034805891094863537, 1e-15);
  EXPECT_EQ(fleet->spread.degrees_of_freedom, 6);
  EXPECT_NEAR(fleet->excess_kurtosis, -0.8503891033165232, 1e-9);
  EXPECT_EQ(fleet->units, 7u);
  ASSERT_EQ(fleet->suspects.size(), 1u);
  const SlowUnit& slow = fleet->suspects.front();
  EXPECT_EQ(slow.unit, 7u);
  EXPECT_NEAR(slow.difference.value, -0.059812884726554216, 1e-14);
  EXPECT_NEAR(slow.difference.standard_error, 0.0037209062719527285, 1e-15);
  EXPECT_EQ(slow.difference.degrees_of_freedom, 6);
  EXPECT_NEAR(slow.p, 2.1048133662956048e-05, 1e-14);
}

TEST(FleetSpeed, TwoSlowUnitsOfEightDoNotHideEachOther) {
  const auto fleet =
      fleet_speed(speeds({1412.3, 1405.8, 1420.1, 1409.9, 1416.6, 1411.0, 1322.7, 1330.0}), alpha);
  EXPECT_THAT(units(fleet->suspects), ElementsAre(6, 7)) << "the slowest first";
  EXPECT_NEAR(fleet->spread.deviation, 0.0035863756445703196, 1e-15);
  for (const SlowUnit& slow : fleet->suspects) EXPECT_NEAR(slow.p, 0.00017449859760538188, 1e-13);
}

TEST(FleetSpeed, AKnownSpreadTakesThePlaceOfTheFleets) {
  const auto fleet = fleet_speed(one_slow, alpha, UnitSpread{0.004, 15});
  EXPECT_NEAR(fleet->spread.deviation, 0.0034805891094863537, 1e-15) << "what it is itself";
  EXPECT_NEAR(fleet->suspects.at(0).difference.standard_error, 0.004276179870598791, 1e-15);
  EXPECT_EQ(fleet->suspects.at(0).difference.degrees_of_freedom, 15);
  EXPECT_NEAR(fleet->suspects.at(0).p, 2.0740161376932017e-09, 1e-16);
  EXPECT_THAT(suspects(one_slow, UnitSpread{0.02, 15}), IsEmpty());
  EXPECT_THAT(suspects({0, 0.01, -0.01, -0.06}), IsEmpty()) << "of 4 units that is little";
  EXPECT_THAT(suspects({0, 0.01, -0.01, -0.06}, UnitSpread{0.01, 30}), ElementsAre(3));
}

// Rosner's example of 54 points, as in NIST's handbook of statistics, 1.3.5.17.3, where three stand
// out at 5 %. The others have a kurtosis of 0.9, whose tail asks for more: then the same three
// stand out, at 15.8 %.
TEST(FleetSpeed, TakesTheThreeOfRosnersExample) {
  const Logs points = {-0.25, 0.68, 0.94, 1.15, 1.20, 1.26, 1.26, 1.34, 1.38, 1.43, 1.49,
                       1.49,  1.55, 1.56, 1.58, 1.65, 1.69, 1.70, 1.76, 1.77, 1.81, 1.91,
                       1.94,  1.96, 1.99, 2.06, 2.09, 2.10, 2.14, 2.15, 2.23, 2.24, 2.26,
                       2.35,  2.37, 2.40, 2.47, 2.54, 2.62, 2.64, 2.90, 2.92, 2.92, 2.93,
                       3.21,  3.26, 3.30, 3.59, 3.68, 4.30, 4.64, 5.34, 5.42, 6.01};
  Logs slow;
  for (const double point : points) slow.push_back(-point);
  const auto fleet = fleet_speed(slow, 0.158);
  EXPECT_THAT(units(fleet->suspects), ElementsAre(53, 52, 51));
  EXPECT_NEAR(fleet->suspects[0].p, 0.1546744709018696, 1e-12);
  EXPECT_NEAR(fleet->suspects[1].p, 0.1571321165296447, 1e-12);
  EXPECT_NEAR(fleet->suspects[2].p, 0.1571321165296447, 1e-12);
  EXPECT_EQ(fleet->units, 51u);
  EXPECT_THAT(suspects(slow), IsEmpty());
  EXPECT_EQ(fleet_speed(points, 0.158)->units, 51u);
  EXPECT_THAT(fleet_speed(points, 0.158)->suspects, IsEmpty()) << "fast";
}

TEST(FleetSpeed, AFastUnitHidesNoSlowOne) {
  const Logs logs = speeds({1412, 1406, 1420, 1410, 1417, 1411, 1330, 1500});
  EXPECT_THAT(suspects(logs), ElementsAre(6));
  EXPECT_EQ(fleet_speed(logs, alpha)->units, 6u);
}

TEST(FleetSpeed, FewerThanFourUnitsAreNotJudged) {
  EXPECT_FALSE(fleet_speed(Logs{}, alpha));
  EXPECT_FALSE(fleet_speed(Logs{1, 1.01, 0.5}, alpha));
  EXPECT_FALSE(fleet_speed(Logs{1, 1.01, 0.5}, alpha, UnitSpread{0.01, 100}));
  EXPECT_THAT(suspects({1, 1.01, 1.02, -9}), ElementsAre(3));
  EXPECT_NEAR(fleet_speed(Logs{0, 0.01, -0.01, -0.2}, alpha)->suspects.at(0).p, 0.00663351744471372,
              1e-12)
      << "the only candidate has all of alpha";
}

// More than a quarter is no exception, but a second kind of unit.
TEST(FleetSpeed, AQuarterAtMostStandsOut) {
  Logs logs = {0, 0.001, -0.001, 0.002, -0.002, 0.0005};
  for (const double slow : {-0.1, -0.1005}) logs.push_back(slow);
  EXPECT_THAT(suspects(logs), ElementsAre(7, 6));
  logs[5] = -0.101;
  EXPECT_THAT(suspects(logs), IsEmpty());
}

TEST(FleetSpeed, EqualAndRoundedUnitsStandOutOnlyWhereTheyDiffer) {
  EXPECT_THAT(suspects(Logs(8, 7.0)), IsEmpty());
  EXPECT_EQ(fleet_speed(Logs(8, 7.0), alpha)->spread.deviation, 0);
  EXPECT_EQ(fleet_speed(Logs(8, 7.0), alpha)->excess_kurtosis, 0);
  Logs logs(8, 7.0);
  logs[2] = std::nextafter(7.0, 0);
  EXPECT_THAT(suspects(logs), IsEmpty()) << "rounding";
  logs[2] = 7 - 0.0002;
  EXPECT_THAT(suspects(logs), IsEmpty()) << "0.02 %";
  logs[2] = 7 - 0.02;
  EXPECT_THAT(suspects(logs), ElementsAre(2));
  EXPECT_THAT(suspects(logs, UnitSpread{0, 7}), ElementsAre(2));
}

TEST(FleetSpeed, RefusesWhatIsNoSpeed) {
  for (const double bad :
       {-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(fleet_speed(Logs{1, 1, 1, 1, bad}, alpha), std::invalid_argument);
    EXPECT_THROW(repeated_suspects(Logs{1, 1, 1, 1, bad}, std::vector<size_t>{0}),
                 std::invalid_argument);
  }
}

// Nothing is subtracted from sums that a unit far out has filled.
TEST(FleetSpeed, IsPreciseBesideAUnitFarOut) {
  Logs logs = one_slow;
  logs.back() = -700;
  logs.insert(logs.begin(), 700);
  const auto fleet = fleet_speed(logs, alpha);
  EXPECT_THAT(units(fleet->suspects), ElementsAre(8));
  EXPECT_NEAR(fleet->centre, 7.252747105942354, 1e-14);
  EXPECT_NEAR(fleet->spread.deviation, 0.0034805891094863537, 1e-15);
}

TEST(RepeatedSuspects, AreJudgedByFreshValuesAlone) {
  // scipy: t.sf of (x - mean) / (s sqrt(1 + 1/7)) with 6 degrees, of one suspect and of two.
  const std::vector<size_t> one = {7};
  const auto confirmed = repeated_suspects(one_slow, one);
  ASSERT_TRUE(confirmed);
  EXPECT_THAT(units(*confirmed), ElementsAre(7));
  EXPECT_NEAR(confirmed->front().difference.value, -0.059812884726554216, 1e-14);
  EXPECT_NEAR(confirmed->front().p, 1.8417116955086541e-06, 1e-15);
  const auto two = repeated_suspects(one_slow, std::vector<size_t>{7, 0});
  EXPECT_THAT(units(*two), ElementsAre(7, 0));
  EXPECT_NEAR(two->front().p, 2.7962032072733857e-05, 1e-14);
  EXPECT_EQ(two->back().p, 1);
  const double confidence = 1 - 2 * alpha / 2;
  EXPECT_LT(interval(two->front().difference, confidence).upper, 1);
  EXPECT_GT(interval(two->back().difference, confidence).upper, 1);
}

TEST(RepeatedSuspects, ConfirmJustWhereTheIntervalEndsBelowOne) {
  for (int thousandths = 0; thousandths < 50; ++thousandths) {
    const double log = -1e-3 * thousandths;
    Logs fresh = one_slow;
    fresh.back() = fresh.front() + log;
    const SlowUnit slow = repeated_suspects(fresh, std::vector<size_t>{7})->front();
    EXPECT_EQ(slow.p < alpha, interval(slow.difference, 1 - 2 * alpha).upper < 1) << log;
  }
}

TEST(RepeatedSuspects, NeedThreeOthersAndKnownIndexes) {
  EXPECT_FALSE(repeated_suspects(Logs{1, 1.01, 0.5}, std::vector<size_t>{2}));
  EXPECT_TRUE(repeated_suspects(Logs{1, 1.01, 1.02, 0.5}, std::vector<size_t>{3}));
  EXPECT_THAT(*repeated_suspects(Logs{1, 1.01, 1.02}, std::vector<size_t>{}), IsEmpty());
  EXPECT_THROW(repeated_suspects(Logs{1, 1.01, 1.02, 0.5}, std::vector<size_t>{4}),
               std::out_of_range);
}

TEST(RepeatedSuspects, AKnownSpreadTakesThePlaceOfTheFleets) {
  const auto wide = repeated_suspects(one_slow, std::vector<size_t>{7}, UnitSpread{0.2, 15});
  EXPECT_GT(wide->front().p, alpha);
  EXPECT_EQ(wide->front().difference.degrees_of_freedom, 15);
}

// By scipy: nct.sf of t.isf(share of alpha / units), solved by brentq.
TEST(DetectableSlowness, IsThatOfTheFirstCandidate) {
  const auto of = [](size_t others, double power) {
    const double degrees = static_cast<double>(others) - 1;
    return detectable_slowness({0, {0.01, degrees}, 0, others, {}}, alpha, power);
  };
  EXPECT_NEAR(of(3, 0.5), 0.058289137104700295, 1e-6);
  EXPECT_NEAR(of(6, 0.8), 0.0501559105639936, 1e-6);
  EXPECT_NEAR(of(7, 0.95), 0.06350444746653483, 1e-6);
  EXPECT_NEAR(detectable_slowness({0, {0.02, 6}, 0, 7, {}}, alpha, 0.95, UnitSpread{0.01, 1000}),
              0.04338574279815899, 1e-6);
}

TEST(DetectableSlowness, ShrinksWithTheSpreadAndWithWhatIsKnownOfIt) {
  const FleetSpeed seven{0, {0.01, 6}, 0, 7, {}};
  const double own = detectable_slowness(seven, alpha, 0.95);
  const double surer = detectable_slowness(seven, alpha, 0.95, UnitSpread{0.01, 1000});
  EXPECT_GT(own, 0.05);
  EXPECT_LT(own, 0.09) << "9 spreads among 8";
  EXPECT_LT(surer, own);
  EXPECT_GT(surer, 0.03) << "nobody finds 3 spreads";
  EXPECT_LT(detectable_slowness({0, {0.001, 6}, 0, 7, {}}, alpha, 0.95), own / 5);
  EXPECT_LT(detectable_slowness(seven, alpha, 0.5), own);
  EXPECT_GT(detectable_slowness({0, {0.01, 99}, 6, 100, {}}, alpha, 0.95),
            1.3 * detectable_slowness({0, {0.01, 99}, 0, 100, {}}, alpha, 0.95))
      << "heavy tails";
  const double of_equal = detectable_slowness({0, {0, 6}, 0, 7, {}}, alpha, 0.95);
  EXPECT_GT(of_equal, 0.0001);
  EXPECT_LT(of_equal, 0.001);
}

}  // namespace
}  // namespace nearmetal
