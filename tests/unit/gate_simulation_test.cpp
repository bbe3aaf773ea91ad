// How often a gate answers what, over thousands of made-up sessions at fixed seeds.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <random>
#include <sstream>

#include "reports/comparison_text.h"
#include "reports/gate.h"
#include "tests/unit/made_up_runs.h"

namespace nearmetal {
namespace {

// Share of made-up sessions that end with this code; the drop is a share, the spread that of runs.
double share_of(ExitCode wanted, double drop, double spread, int runs, FailOn fail_on,
                int sessions) {
  std::mt19937_64 engine(31);
  std::normal_distribution<double> noise;
  const RunSet shape = made_up_set({{"run", std::vector<double>(runs, 1)}});
  const auto fill = [&](RunSet& set, double level, char minute) {
    for (SetRun& run : set.arms[0].runs) {
      run.run.throughput_images_per_second = level * std::exp(spread * noise(engine));
      run.run.started_at[11] = minute;  // one side after the other
    }
  };
  int count = 0;
  for (int session = 0; session < sessions; ++session) {
    RunSet base = shape;
    RunSet next = shape;
    fill(base, 1000, '0');
    fill(next, 1000 * (1 - drop), '1');
    count += judge(compare(base, next, {}), {.fail_on = fail_on}).exit_code == wanted;
  }
  return static_cast<double>(count) / sessions;
}

TEST(GateSimulation, EqualSetsHardlyEverFail) {
  for (const double spread : {0.002, 0.005, 0.01, 0.02}) {
    for (const int runs : {3, 8}) {
      EXPECT_LT(share_of(ExitCode::gate_failed, 0, spread, runs, FailOn::regression, 2000), 0.01)
          << spread << ", " << runs << " runs";
    }
  }
}

TEST(GateSimulation, ADropOfExactlyTheMarginFailsNoMoreOftenThanAlpha) {
  constexpr int sessions = 4000;
  const double bound = 0.05 + 4 * std::sqrt(0.05 * 0.95 / sessions);
  for (const int runs : {3, 5, 8}) {
    const double share =
        share_of(ExitCode::gate_failed, 0.02, 0.005, runs, FailOn::regression, sessions);
    EXPECT_LE(share, bound) << runs << " runs";
    EXPECT_GE(share, 0.03) << "the test is not idle";
  }
}

TEST(GateSimulation, ADropBeyondTheMarginIsFound) {
  EXPECT_GE(share_of(ExitCode::gate_failed, 0.03, 0.005, 8, FailOn::regression, 4000), 0.95);
  EXPECT_GE(share_of(ExitCode::gate_failed, 0.05, 0.01, 8, FailOn::not_equivalent, 2000), 0.95);
}

TEST(GateSimulation, AStrictGateHardlyPassesWhatIsAtTheMargin) {
  constexpr int sessions = 4000;
  const double bound = 0.05 + 4 * std::sqrt(0.05 * 0.95 / sessions);
  EXPECT_LE(share_of(ExitCode::ok, 0.02, 0.005, 5, FailOn::not_equivalent, sessions), bound);
  EXPECT_LE(share_of(ExitCode::ok, 0.02, 0.005, 5, FailOn::any, sessions), bound);
  EXPECT_GE(share_of(ExitCode::ok, 0, 0.005, 5, FailOn::any, 1000), 0.95);
}

TEST(Load, AThousandRowsArePrintedAtOnce) {
  std::vector<std::pair<std::string, std::vector<double>>> arms;
  for (int i = 0; i < 1000; ++i) {
    arms.push_back({"arm " + std::to_string(i), {1000.0 + i % 7, 1001, 1002, 1004}});
  }
  const Comparison comparison = compare(made_up_set(arms), made_up_set(arms, 60), {});
  ASSERT_EQ(comparison.rows.size(), 1000U);
  const auto start = std::chrono::steady_clock::now();
  std::ostringstream text;
  print_comparison(text, comparison, true);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), 0.2);
  RecordProperty("milliseconds", static_cast<int>(1e3 * seconds.count()));
}

}  // namespace
}  // namespace nearmetal
