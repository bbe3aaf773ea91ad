// How often a gate answers what, over thousands of made-up sessions at fixed seeds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "reports/compare/gate.h"
#include "reports/formats/comparison_text.h"
#include "tests/support/made_up_runs.h"

namespace nearmetal {
namespace {

struct Session {
  double drop = 0;    // true, of the new side, as a share
  double spread = 0;  // standard deviation of ln(run)
  int runs = 3;       // a side
  FailOn fail_on = FailOn::regression;
  int64_t reruns = 0;  // at most, while inconclusive
  int rows = 1;        // rows that drop alike
};

// Made-up sessions, the same for the same seed: one side after the other in time.
class Sessions {
 public:
  explicit Sessions(const Session& session) : session_(session) {
    std::vector<std::pair<std::string, std::vector<double>>> arms;
    for (int row = 0; row < session.rows; ++row) {
      arms.push_back({"row " + std::to_string(row), std::vector<double>(session.runs, 1)});
    }
    shape_ = made_up_set(arms);
  }

  Comparison compared() {
    const auto [base, next] = sides();
    return compare(base, next, {});
  }

  GateResult next() {
    auto [base, next] = sides();
    const double level = 1000 * (1 - session_.drop);
    const auto take_run = [&](RunSet& set) {
      for (RunArm& arm : set.arms) fill(arm.runs.emplace_back(shape_.arms[0].runs[0]), level, '2');
    };
    return judge_sequentially({base}, next, {}, {.fail_on = session_.fail_on}, session_.reruns,
                              take_run)
        .second;
  }

 private:
  std::pair<RunSet, RunSet> sides() {
    std::pair sides(shape_, shape_);
    for (RunArm& arm : sides.first.arms) {
      for (SetRun& run : arm.runs) fill(run, 1000, '0');
    }
    for (RunArm& arm : sides.second.arms) {
      for (SetRun& run : arm.runs) fill(run, 1000 * (1 - session_.drop), '1');
    }
    return sides;
  }
  void fill(SetRun& run, double level, char hour) {
    run.run.throughput = level * std::exp(session_.spread * noise_(engine_));
    run.run.started_at[11] = hour;
  }

  Session session_;
  RunSet shape_;
  std::mt19937_64 engine_{31};
  std::normal_distribution<double> noise_;
};

// Share of so many sessions that end with this code.
double share_of(ExitCode wanted, const Session& session, int count) {
  Sessions sessions(session);
  int found = 0;
  for (int i = 0; i < count; ++i) found += sessions.next().exit_code == wanted;
  return static_cast<double>(found) / count;
}

double share_of(ExitCode wanted, double drop, double spread, int runs, FailOn fail_on,
                int sessions) {
  return share_of(wanted, {drop, spread, runs, fail_on}, sessions);
}

TEST(GateSimulation, EqualSetsHardlyEverFail) {
  for (const double spread : {0.002, 0.005, 0.01, 0.02}) {
    for (const int runs : {3, 8}) {
      EXPECT_LT(share_of(ExitCode::gate_failed, 0, spread, runs, FailOn::regression, 2000), 0.01)
          << spread << ", " << runs << " runs";
    }
  }
}

// A run is added whenever the answer is open: what a gate without correction would get wrong.
TEST(GateSimulation, RerunsRaiseNoFalseAlarms) {
  constexpr int sessions = 1000;
  const double bound = 0.05 + 4 * std::sqrt(0.05 * 0.95 / sessions);
  for (const auto& [runs, reruns] : {std::pair(3, 6), std::pair(5, 2)}) {
    const auto share = [&, runs = runs, reruns = reruns](ExitCode wanted, double drop,
                                                         double spread, FailOn fail_on) {
      return share_of(wanted, {drop, spread, runs, fail_on, reruns}, sessions);
    };
    EXPECT_LT(share(ExitCode::gate_failed, 0, 0.02, FailOn::regression), 0.01);
    EXPECT_LE(share(ExitCode::gate_failed, 0.02, 0.005, FailOn::regression), bound);
    EXPECT_LE(share(ExitCode::ok, 0.02, 0.005, FailOn::not_equivalent), bound);
    EXPECT_GT(share(ExitCode::gate_failed, 0.03, 0.005, FailOn::regression),
              share_of(ExitCode::gate_failed, {0.03, 0.005, runs}, sessions))
        << "more runs find more";
  }
}

// Each row alone is shown to be slower at the first look already, but not after correction.
TEST(GateSimulation, RerunsPassNoDropOfAllRows) {
  const Session session{.drop = 0.04, .spread = 0.005, .runs = 5, .reruns = 4, .rows = 4};
  EXPECT_EQ(share_of(ExitCode::gate_failed, session, 300), 1);
}

struct RowOfNotes {
  Session session;
  double shown[3] = {};  // fails, passes `not-equivalent`, fails with --rerun 4: in %
};

// docs/notes/error_rates.md shows what is simulated here.
std::vector<RowOfNotes> rows_of_notes() {
  std::ifstream file(NM_NOTES_FOLDER "/error_rates.md");
  std::vector<RowOfNotes> rows;
  for (std::string line; std::getline(file, line);) {
    RowOfNotes row;
    auto& [session, shown] = row;
    if (std::sscanf(line.c_str(), "| %lf %% | %lf %% | %d | %lf %% | %lf %% | %lf %% |",
                    &session.drop, &session.spread, &session.runs, &shown[0], &shown[1],
                    &shown[2]) != 6) {
      continue;
    }
    session.drop /= 100;
    session.spread /= 100;
    rows.push_back(row);
  }
  return rows;
}

std::vector<double> shares_of(const Session& session, int sessions) {
  Session strict = session, sequential = session;
  strict.fail_on = FailOn::not_equivalent;
  sequential.reruns = 4;
  return {share_of(ExitCode::gate_failed, session, sessions),
          share_of(ExitCode::ok, strict, sessions),
          share_of(ExitCode::gate_failed, sequential, sessions)};
}

// What it says of 10,000 is found again in a few.
TEST(GateSimulation, TheTableOfTheNotesIsTrue) {
  constexpr int sessions = 1000;
  const std::vector<RowOfNotes> rows = rows_of_notes();
  EXPECT_GE(rows.size(), 12u);
  for (const auto& [session, shown] : rows) {
    const std::vector<double> found = shares_of(session, sessions);
    for (size_t i = 0; i < found.size(); ++i) {
      const double share = shown[i] / 100;
      const double error = std::sqrt(std::max(0.001, share * (1 - share)) / sessions);
      EXPECT_NEAR(share, found[i], 4 * error)
          << session.drop << " at " << session.spread << ", " << session.runs << ": share " << i;
    }
  }
}

// No test, as it takes minutes and checks nothing: it prints the rows of the notes anew, by
// --gtest_also_run_disabled_tests --gtest_filter='*PrintTheTable*'.
TEST(GateSimulation, DISABLED_PrintTheTable) {
  for (const auto& [session, shown] : rows_of_notes()) {
    std::printf("| %g %% | %g %% | %d |", 100 * session.drop, 100 * session.spread, session.runs);
    for (const double share : shares_of(session, 10'000)) std::printf(" %.1f %% |", 100 * share);
    std::printf("\n");
  }
}

// What is said of bad runs and of trends changes few verdicts where there are none.
TEST(GateSimulation, FewVerdictsDependOnOneRunOrOnATrendWhereRunsAreIndependent) {
  constexpr int count = 2000;
  for (const double drop : {0.0, 0.02, 0.03}) {
    for (const int runs : {5, 8}) {
      Sessions sessions({drop, 0.005, runs});
      int doubted = 0;
      for (int i = 0; i < count; ++i) {
        const ComparisonRow row = sessions.compared().rows.at(0);
        doubted += row.doubt || row.method == Method::trend;
      }
      EXPECT_LE(doubted, .05 * count) << drop << ", " << runs << " runs";
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

// CPU time, whatever else runs; the least of some trials.
double seconds_to_print(int rows) {
  std::vector<std::pair<std::string, std::vector<double>>> arms;
  for (int i = 0; i < rows; ++i) {
    arms.push_back({"arm " + std::to_string(i), {1000.0 + i % 7, 1001, 1002, 1004}});
  }
  const Comparison comparison = compare(made_up_set(arms), made_up_set(arms, 60), {});
  EXPECT_EQ(std::ssize(comparison.rows), rows);
  double least = std::numeric_limits<double>::infinity();
  for (int trial = 0; trial < 5; ++trial) {
    const std::clock_t start = std::clock();
    std::ostringstream text;
    print_text(text, page_of(comparison), true);
    least = std::min(least, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return least;
}

TEST(Load, FourTimesTheRowsTakeAboutFourTimesAsLongToPrint) {
  const double seconds = seconds_to_print(1000);
  EXPECT_LT(seconds, 8 * seconds_to_print(250)) << "16 times, were it quadratic";
  EXPECT_LT(seconds, 1) << "a hundredth of it is usual";
}

}  // namespace
}  // namespace nearmetal
