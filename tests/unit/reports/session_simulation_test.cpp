// How often verdicts are wrong where runs are not independent: sessions, drift, slow losses.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "reports/compare/baseline.h"
#include "reports/compare/gate.h"
#include "reports/statistics/statistics.h"
#include "tests/support/made_up_runs.h"

namespace nearmetal {
namespace {

// How runs are taken, where they are not independent. Shares and changes are of a run's level.
struct PlanOfRuns {
  int base_sessions = 1;
  int base_runs = 8;             // a session
  int new_runs = 8;              // in one session; with pairs as many as those of the base
  std::string order = "blocks";  // blocks: the sides one after the other; ABAB, ABBA: by turns
  double between = 0;            // standard deviation of sessions
  double drift = 0;              // of each run from the one before
  double autocorrelation = 0;    // of neighbouring runs
  double spread = 0;             // standard deviation of runs
  double drop = 0;
  int new_sessions = 1;
  double between_new = 0;  // of several new sessions
};

class PlannedRuns {
 public:
  explicit PlannedRuns(const PlanOfRuns& plan) : plan_(plan) {}

  Comparison next() {
    const auto [base, next] = next_sides();
    return compare(base, next, {});
  }

  std::pair<RunSet, RunSet> next_sides() {
    RunSet base, next;
    minute_ = 0;
    noise_now_ = noise_(engine_);
    if (plan_.order != "blocks") {
      start_session(0, true);
      for (int i = 0; i < plan_.base_runs; ++i) {
        const bool base_first = plan_.order == "ABAB" || i % 2 == 0;
        for (const bool of_base : {base_first, !base_first}) take(of_base ? base : next, of_base);
      }
    } else {
      for (int session = 0; session < plan_.base_sessions + plan_.new_sessions; ++session) {
        const bool of_base = session < plan_.base_sessions;
        // A base of one session shares it with the new runs.
        if (of_base || plan_.base_sessions > 1) start_session(session, of_base);
        for (int i = 0; i < (of_base ? plan_.base_runs : plan_.new_runs); ++i) {
          take(of_base ? base : next, of_base);
        }
      }
    }
    return {base, next};
  }

 private:
  void start_session(int number, bool of_base) {
    day_ = number;
    level_ =
        (of_base || plan_.new_sessions == 1 ? plan_.between : plan_.between_new) * noise_(engine_);
  }
  void take(RunSet& side, bool of_base) {
    const double kept = plan_.autocorrelation;
    noise_now_ = kept * noise_now_ + std::sqrt(1 - kept * kept) * noise_(engine_);
    const double log = level_ + plan_.spread * noise_now_ + plan_.drift * minute_ +
                       (of_base ? 0 : std::log(1 - plan_.drop));
    SetRun run = shape_.arms[0].runs[0];
    run.run.throughput = 1000 * std::exp(log);
    run.run.started_at = time_at(minute_++);
    run.run.started_at[8] = static_cast<char>('0' + day_ / 10);
    run.run.started_at[9] = static_cast<char>('0' + day_ % 10);
    add_run(side, "run", run, shape_.environments);
  }

  PlanOfRuns plan_;
  RunSet shape_ = made_up_set({{"run", {1}}});
  std::mt19937_64 engine_{32};
  std::normal_distribution<double> noise_;
  double noise_now_ = 0, level_ = 0;
  int minute_ = 0, day_ = 0;
};

// A row of a table of docs/notes/error_rates.md, up to its shares.
std::optional<PlanOfRuns> plan_in(const std::string& line) {
  PlanOfRuns plan;
  char order[16] = {};
  const int dependent =
      std::sscanf(line.c_str(), "| %d x %d | %d | %15s | %lf %% | %lf %% | %lf | %lf %% | %lf %% |",
                  &plan.base_sessions, &plan.base_runs, &plan.new_runs, order, &plan.between,
                  &plan.drift, &plan.autocorrelation, &plan.spread, &plan.drop);
  plan.order = order;
  if (dependent != 9) {
    plan = {.order = "blocks"};
    if (std::sscanf(line.c_str(), "| %d x %d at %lf %% | %d x %d at %lf %% | %lf %% | %lf %% |",
                    &plan.base_sessions, &plan.base_runs, &plan.between, &plan.new_sessions,
                    &plan.new_runs, &plan.between_new, &plan.spread, &plan.drop) != 8) {
      return std::nullopt;
    }
  }
  for (double* percent :
       {&plan.between, &plan.between_new, &plan.drift, &plan.spread, &plan.drop}) {
    *percent /= 100;
  }
  return plan;
}

// Of so many comparisons: SLOWER, EQUIVALENT, and those whose interval of 90 % holds the truth.
std::vector<double> simulated(const PlanOfRuns& plan, int count) {
  PlannedRuns runs(plan);
  std::vector<double> shares(3);
  for (int i = 0; i < count; ++i) {
    const ComparisonRow row = runs.next().rows.at(0);
    const Interval& found = *row.difference_interval;
    shares[0] += row.verdict == Verdict::slower;
    shares[1] += row.verdict == Verdict::equivalent;
    shares[2] += found.lower <= -plan.drop && -plan.drop <= found.upper;
  }
  for (double& share : shares) share /= count;
  return shares;
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream stream(line.substr(2));
  for (std::string cell; std::getline(stream, cell, '|');) cells.push_back(cell);
  return cells;
}

constexpr size_t shares_shown = 3;

// What they say of 10,000 is found again in a few.
TEST(SessionSimulation, TheTablesOfDependentRunsAreTrue) {
  constexpr int count = 400;
  std::ifstream file(NM_NOTES_FOLDER "/error_rates.md");
  int rows = 0;
  for (std::string line; std::getline(file, line);) {
    const auto plan = plan_in(line);
    if (!plan) continue;
    ++rows;
    const std::vector<double> shares = simulated(*plan, count);
    const std::vector<std::string> cells = cells_of(line);
    ASSERT_GT(cells.size(), shares_shown) << line;
    for (size_t i = 0; i < shares_shown; ++i) {
      const double shown = std::stod(cells[cells.size() - shares_shown + i]) / 100;
      const double error = std::sqrt(std::max(0.001, shown * (1 - shown)) / count);
      EXPECT_NEAR(shown, shares[i], 4 * error) << line << ": share " << i;
    }
  }
  EXPECT_GE(rows, 30);
}

// No test, as it takes minutes and checks nothing: it prints the rows of the notes anew, by
// --gtest_also_run_disabled_tests --gtest_filter='*PrintTheTables*'.
TEST(SessionSimulation, DISABLED_PrintTheTables) {
  std::ifstream file(NM_NOTES_FOLDER "/error_rates.md");
  for (std::string line; std::getline(file, line);) {
    const auto plan = plan_in(line);
    if (!plan) continue;
    std::vector<std::string> cells = cells_of(line);
    std::printf("|");
    for (size_t i = 0; i + shares_shown < cells.size(); ++i) std::printf(" %s|", cells[i].c_str());
    for (const double share : simulated(*plan, 10'000)) std::printf(" %.1f %% |", 100 * share);
    std::printf("\n");
  }
}

// A row of the table of self-tests, up to its shares.
std::optional<PlanOfRuns> plan_of_self_test(const std::string& line) {
  PlanOfRuns plan;
  double shown = 0;
  if (std::sscanf(line.c_str(), "| %d x %d | %d | %lf %% | %lf %% | %lf %%", &plan.base_sessions,
                  &plan.base_runs, &plan.new_runs, &plan.between, &plan.spread, &shown) != 6) {
    return std::nullopt;
  }
  plan.between /= 100;
  plan.spread /= 100;
  return plan;
}

// Of so many baselines: the splits that were SLOWER, the drop that is found (the median), and the
// new runs with such a drop that a gate called SLOWER.
std::vector<double> self_tested(const PlanOfRuns& plan, int count) {
  PlannedRuns runs(plan);
  double alarms = 0, found = 0;
  std::vector<double> drops;
  for (int i = 0; i < count; ++i) {
    auto [base, next] = runs.next_sides();
    const SelfTest test = series_of(base, "main", {}, true).at(0).self_test.value();
    alarms += static_cast<double>(test.slower) / static_cast<double>(test.splits) / count;
    drops.push_back(test.detectable_drop.value.value_or(1));
    for (SetRun& run : next.arms[0].runs) *run.run.throughput.value *= 1 - drops.back();
    found += compare(base, next, {}).rows.at(0).verdict == Verdict::slower;
  }
  return {alarms, median(drops), found / count};
}

TEST(SessionSimulation, TheTableOfSelfTestsIsTrue) {
  const auto count_of = [](const PlanOfRuns& plan) { return plan.base_sessions == 1 ? 12 : 60; };
  std::ifstream file(NM_NOTES_FOLDER "/error_rates.md");
  int rows = 0;
  for (std::string line; std::getline(file, line);) {
    const auto plan = plan_of_self_test(line);
    if (!plan) continue;
    ++rows;
    const int count = count_of(*plan);
    const std::vector<double> shares = self_tested(*plan, count);
    const std::vector<std::string> cells = cells_of(line);
    const auto shown = [&](size_t i) { return std::stod(cells.at(4 + i)) / 100; };
    EXPECT_NEAR(shown(0), shares[0], 0.02) << line;
    EXPECT_NEAR(shown(1), shares[1], 0.15 * shown(1)) << line;
    EXPECT_NEAR(shown(2), shares[2], 4 * std::sqrt(shown(2) * (1 - shown(2)) / count)) << line;
  }
  EXPECT_EQ(rows, 4);
}

// No test, as it takes minutes and checks nothing: it prints the rows of the notes anew.
TEST(SessionSimulation, DISABLED_PrintTheTableOfSelfTests) {
  std::ifstream file(NM_NOTES_FOLDER "/error_rates.md");
  for (std::string line; std::getline(file, line);) {
    const auto plan = plan_of_self_test(line);
    if (!plan) continue;
    const std::vector<double> shares = self_tested(*plan, 400);
    std::printf("| %d x %d | %d | %g %% | %g %% |", plan->base_sessions, plan->base_runs,
                plan->new_runs, 100 * plan->between, 100 * plan->spread);
    for (const double share : shares) std::printf(" %.1f %% |", 100 * share);
    std::printf("\n");
  }
}

// A baseline that takes each new run which passed its gate follows a loss in small steps.
// Returns the loss at which a gate failed; none of 40 did: 1. On as many days, or on one.
double loss_seen(double loss_of_a_gate, bool with_anchor, bool one_day = false) {
  std::mt19937_64 engine(33);
  std::normal_distribution<double> noise;
  RunSet history;
  for (int number = 0; number < 40; ++number) {
    const double level = 1000 * std::pow(1 - loss_of_a_gate, number);
    std::vector<double> runs;
    for (int i = 0; i < 5; ++i) runs.push_back(level * std::exp(0.002 * noise(engine)));
    Report report = made_up_report({{"run", runs}});
    for (auto& run : report.arms[0].runs) {
      if (one_day) {
        run.started_at[11] = static_cast<char>('0' + number / 10);
        run.started_at[12] = static_cast<char>('0' + number % 10);
        continue;
      }
      run.started_at[6] = static_cast<char>('1' + number / 20);
      run.started_at[8] = static_cast<char>('0' + number % 20 / 10);
      run.started_at[9] = static_cast<char>('0' + number % 10);
    }
    RunSet next;
    add_runs(next, report, "made up");
    if (number > 0) {
      Baseline baseline = matching_runs(history, next, {});
      if (!with_anchor) baseline.anchor = {};
      const auto gated = judge_sequentially(baseline, next, {}, {}, 0, {});
      if (gated.second.exit_code != ExitCode::ok) return 1 - level / 1000;
    }
    add_runs(history, report, "made up");
  }
  return 1;
}

TEST(SessionSimulation, TheAnchorEndsASlowLoss) {
  EXPECT_EQ(loss_seen(0.006, false), 1) << "down to -21 %";
  EXPECT_LT(loss_seen(0.006, true), 0.06);
  EXPECT_EQ(loss_seen(0, true), 1) << "no loss, no failure";
  EXPECT_LT(loss_seen(0.006, true, true), 0.06) << "within one day";
  EXPECT_GT(loss_seen(0.006, false, true), 0.09) << "where the trend of the base ends it, late";
  EXPECT_EQ(loss_seen(0, true, true), 1);
}

// Two rows, against the recent runs and against the first, are one gate: both together fail no
// more often than alpha at a drop of exactly the margin.
TEST(SessionSimulation, AGateWithItsAnchorFailsNoMoreOftenThanAlpha) {
  constexpr int count = 1000;
  std::mt19937_64 engine(34);
  std::normal_distribution<double> noise;
  struct Case {
    double drop, at_least, at_most;  // shares that fail
  };
  const double bound = 0.05 + 4 * std::sqrt(0.05 * 0.95 / count);
  for (const auto& [drop, at_least, at_most] :
       {Case{0, 0, 0}, Case{0.02, 0.01, bound}, Case{0.035, 0.9, 1}}) {
    int failed = 0;
    for (int i = 0; i < count; ++i) {
      const auto runs = [&](int number, double level) {
        std::vector<double> values;
        while (std::ssize(values) < number)
          values.push_back(level * std::exp(.005 * noise(engine)));
        return values;
      };
      const RunSet history = made_up_set({{"run", runs(30, 1000)}});
      RunSet next = made_up_set({{"run", runs(5, 1000 * (1 - drop))}}, 60);
      const Baseline baseline = matching_runs(history, next, {});
      const auto gated = judge_sequentially(baseline, next, {}, {}, 0, {});
      EXPECT_EQ(gated.first.rows.size(), 2u);
      failed += gated.second.exit_code == ExitCode::gate_failed;
    }
    const double share = static_cast<double>(failed) / count;
    EXPECT_GE(share, at_least) << drop;
    EXPECT_LE(share, at_most) << drop;
  }
}

// Each machine of a fleet left out in turn is within what the others show as often as the interval
// says, and so is a new one that was measured on one day where those were on several.
TEST(SessionSimulation, MachinesOfAKindAreWithinWhatTheOthersShowAsOftenAsStated) {
  constexpr int fleets = 400;
  constexpr double alpha = 0.05;
  std::mt19937_64 engine(35);
  std::normal_distribution<double> noise;
  struct Case {
    int machines, days, runs;
    double between, of_days, of_runs;
  };
  for (const auto& [machines, days, runs, between, of_days, of_runs] :
       {Case{6, 2, 3, .01, .002, .002}, Case{12, 3, 3, .01, .005, .002},
        Case{6, 1, 5, .005, 0, .005}}) {
    const auto drawn = [&](int of_days_drawn) {
      nearmetal::Sessions sessions;
      const double machine = between * noise(engine);
      for (int day = 0; day < of_days_drawn; ++day) {
        const double level = machine + of_days * noise(engine);
        auto& of_one = sessions[std::to_string(day)];
        while (std::ssize(of_one) < runs) of_one.push_back(level + of_runs * noise(engine));
      }
      return sessions;
    };
    const auto is_within = [&](const std::vector<nearmetal::Sessions>& others,
                               const nearmetal::Sessions& one) {
      const auto found = difference_from_machines(others, one);
      const Interval interval = log_interval(*found, 1 - 2 * alpha);
      return interval.lower <= 0 && interval.upper >= 0;
    };
    int left_out_within = 0, new_within = 0;
    for (int i = 0; i < fleets; ++i) {
      std::vector<nearmetal::Sessions> fleet;
      while (std::ssize(fleet) < machines) fleet.push_back(drawn(days));
      new_within += is_within(fleet, drawn(1));
      for (size_t one = 0; one < fleet.size(); ++one) {
        std::vector<nearmetal::Sessions> others = fleet;
        others.erase(others.begin() + static_cast<std::ptrdiff_t>(one));
        left_out_within += is_within(others, fleet[one]);
      }
    }
    const double share = 1 - 2 * alpha;
    const double error = std::sqrt(share * (1 - share) / fleets);
    EXPECT_NEAR(static_cast<double>(left_out_within) / (fleets * machines), share, 3 * error);
    EXPECT_NEAR(static_cast<double>(new_within) / fleets, share, 3 * error);
  }
}

}  // namespace
}  // namespace nearmetal
